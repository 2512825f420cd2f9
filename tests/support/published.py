"""Trainings that use the published `determined` package, and the environment that gives it to a job."""

from __future__ import annotations

from typing import Any

# Trainings without a set end go on until they are paused, and a while after that.

# A PyTorchTrial as Determined's users have them: a line fitted to four points a batch.
MODEL = """
import time

import determined as det
import torch
from determined import pytorch

assert det.__version__ == "0.38.1", det.__file__


class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        self.optimizer = context.wrap_optimizer(optimizer)

    def _data(self):
        x = torch.linspace(-1, 1, 64).reshape(4, 16).T.reshape(-1, 1)  # each batch from everywhere
        return pytorch.DataLoader(torch.utils.data.TensorDataset(x, 3 * x + 1), batch_size=4)

    build_training_data_loader = build_validation_data_loader = _data

    def _loss(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)

    def train_batch(self, batch, epoch_idx, batch_idx):
        hparams = self.context.get_hparams()
        if hparams["lr"] < hparams.get("hasty_from", 1):
            time.sleep(hparams.get("pause", 0))
        loss = self._loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "workers": self.context.distributed.get_size()}

    def evaluate_batch(self, batch):
        return {"validation_loss": self._loss(batch).item()}
"""

FIT = """
import determined as det
from determined import pytorch
from model import LineTrial

info = det.get_cluster_info()
begun_at = info.trial._steps_completed
print("going on from", begun_at, flush=True)
with pytorch.init(hparams=info.trial.hparams) as context:
    trainer = pytorch.Trainer(LineTrial(context), context)
    trainer.fit(
        max_length=pytorch.Batch(info.trial.hparams.get("batches") or (begun_at + 20 if begun_at else 10**6)),
        validation_period=pytorch.Batch(info.trial.hparams["validate_every"]),
        reporting_period=pytorch.Batch(5),
        checkpoint_policy="none",
        latest_checkpoint=info.latest_checkpoint,
        profiling_enabled=bool(info.trial._config["profiling"]["enabled"]),
    )
"""

# What a script of the Core API does; it shows that this is the published package in a job of ours.
CORE = """
import json, os, time
import determined as det

assert det.__version__ == "0.38.1", det.__file__
for place in filter(None, os.environ.get("EXPECTED", "").split(":")):
    assert os.path.exists(place), place
info = det.get_cluster_info()
with det.core.init(tensorboard_mode=det.core.TensorboardMode.MANUAL) as core:
    done = 0
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            done = json.loads((path / "state.json").read_text())
        core.train.set_metadata({"went_on_from": done})
    print("going on from", done, flush=True)
    core.profiler.on(sampling_interval=0.2, samples_per_report=2)
    core.train.set_status("training")
    last = done + 15 if done else 10**6
    while True:
        done += 1
        core.train.report_training_metrics(steps_completed=done, metrics={"loss": 1 / done})
        if done % 5 == 0:
            core.train.report_validation_metrics(steps_completed=done, metrics={"error": 1 / done})
            best = core.train.get_experiment_best_validation()
        core.train.report_progress(done / last)
        time.sleep(0.1)
        over = core.preempt.should_preempt() or done >= last
        if over or done == 5:
            with core.checkpoint.store_path({"steps_completed": done}) as (path, uuid):
                (path / "state.json").write_text(json.dumps(done))
        if over:
            break
    core.profiler.off()
print("left after", done, "best", best, flush=True)
"""


def experiment(entrypoint: str, searcher: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """The configuration of an experiment; `hparams` and all other keys as in the file."""
    return {
        "name": "published",
        "entrypoint": entrypoint,
        "hyperparameters": keys.pop("hparams"),
        "searcher": searcher or {"name": "single", "metric": "validation_loss"},
        "max_restarts": 0,
        **keys,
    }
