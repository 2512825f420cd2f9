"""Lightning's Trainer with our callback, in real jobs, under both names of its package."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained
from tests.support.runtime.trials import LEAVE

ROOT = Path(__file__).resolve().parents[3]
PYTHON = find_python("lightning", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with the frameworks and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with lightning: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# 40 items a rank in batches of 4, two of them a step: five steps an epoch, 15 in all.
SCRIPT = """
import json, os, random
import numpy as np
import torch
import lightning.pytorch as pl
from trainmaster import core
from trainmaster.lightning import TrainmasterCallback, latest_checkpoint
import leave

class Data(torch.utils.data.Dataset):
    # Augmented with random numbers of each kind: a batch made twice would differ.
    def __init__(self, size):
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        noise = torch.randn(4) + float(np.random.rand()) + random.random()
        return self.x[index] + 0.1 * noise, self.x[index].sum()

class Module(pl.LightningModule):
    def __init__(self, width=4, lr=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Dropout(0.3), torch.nn.Linear(width, 1))
    def training_step(self, batch, batch_idx):
        leave.at(self.global_step + 1)
        loss = ((self.net(batch[0])[:, 0] - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking:
            leave.at(self.global_step, "evaluation")
        loss = ((self.net(batch[0])[:, 0] - batch[1]) ** 2).mean()
        self.log("val_loss", loss, sync_dist=True)
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 15)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

class Kept(pl.callbacks.ModelCheckpoint):
    def on_validation_end(self, trainer, module):
        super().on_validation_end(trainer, module)
        if not trainer.sanity_checking:
            leave.at(trainer.global_step, "save")

def loaders():
    size = int(os.environ.get("WORLD_SIZE", "1"))
    train = torch.utils.data.DataLoader(Data(40 * size), batch_size=4, shuffle=True, num_workers=1)
    return train, torch.utils.data.DataLoader(Data(8), batch_size=4)

if __name__ == "__main__":
    options = json.loads(os.environ.get("OPTIONS", "{}"))
    kept = options.pop("kept", None)
    callbacks = [TrainmasterCallback()]
    if kept is not None:
        callbacks.append(Kept(dirpath="kept", **kept))
    pl.seed_everything(**core.apply_hparams(pl.seed_everything, seed=7))
    module = Module(**core.apply_hparams(Module, width=8))
    print("ARGUMENTS", json.dumps(dict(module.hparams)))
    trainer = pl.Trainer(**{
        **dict(max_epochs=3, accelerator="cpu", devices=1, accumulate_grad_batches=2, log_every_n_steps=2,
               callbacks=callbacks, logger=False, enable_checkpointing=kept is not None, enable_progress_bar=False,
               num_nodes=int(os.environ.get("WORLD_SIZE", "1"))),
        **options,
    })
    train, validation = loaders()
    trainer.fit(module, train, validation, ckpt_path=latest_checkpoint())
    if kept is not None:
        print("BEST", float(trainer.checkpoint_callback.best_model_score), trainer.checkpoint_callback.best_model_path)
    leave.digest(p.detach().numpy() for p in module.parameters())
"""
HPARAMS = {"lr": "1e-2", "unknown": 1}
SEARCHER = {"name": "single", "metric": "val_loss"}


@pytest.fixture
def fit(trial: Any) -> Any:
    """`fit(options of Trainer, **more)`: a trial of SCRIPT."""

    def make(options: Any = None, script: str = SCRIPT, **more: Any) -> Any:
        environment = {"OPTIONS": json.dumps(options or {})}
        return trial(
            script, **{"python": PYTHON, "hparams": HPARAMS, "environment": environment, "searcher": SEARCHER, **more}
        )

    return make


def test_a_trial_that_was_cut_in_four_ends_with_the_same_weights(fit: Any) -> None:
    whole, cut = fit(), fit()
    alone = whole.through()
    # In the middle of an epoch; in the validation at the end of one; killed.
    last = cut.through("ask step 3", "ask evaluation 10", "kill step 14")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert [json.loads(line) for line in alone.printed("ARGUMENTS")] == [{"width": 8, "lr": 0.01}]
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert [step for step, _ in whole.metrics("training")] == [2, 4, 6, 8, 10, 12, 14]
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in whole.metrics("validation")] == [5, 10, 15]
    assert whole.metrics("validation")[0][1].items() >= {"batches": 5, "epochs": 1}.items()
    assert [record["progress"] for record in alone.master.kinds("progress")][-1] == 1.0
    (stored,) = cut.attempts[0].checkpoints
    assert (stored["steps_completed"], set(stored["resources"])) == (3, {"checkpoint.ckpt", "metadata.json"})
    trained(cut, "trainmaster.lightning", "lightning", "torch")


def test_the_release_before_ends_with_the_same_weights(fit: Any) -> None:
    """Under the package's other name."""
    script = SCRIPT.replace("lightning.pytorch", "pytorch_lightning")
    whole, cut = fit(script=script), fit(script=script)
    alone, last = whole.through(), cut.through("ask step 7")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    trained(cut, "trainmaster.lightning", "pytorch-lightning", "torch")


KEPT = {"kept": {"monitor": "val_loss", "mode": "max", "save_top_k": 1, "save_last": True, "filename": "best-{step}"}}


def test_the_best_checkpoint_outlives_the_jobs_and_last_ckpt_gets_no_version(fit: Any) -> None:
    """The loss falls, so that with `mode: max` the checkpoint of the first epoch remains the best one."""
    whole, cut = fit(KEPT), fit(KEPT)
    alone = whole.through()
    last = cut.through("kill step 8", "kill save 10", "ask step 12")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    ((value, path),) = [line.split() for line in alone.printed("BEST")]
    ((same, moved),) = [line.split() for line in last.printed("BEST")]
    assert value == same
    assert path.endswith("kept/best-step=5.ckpt")
    first = cut.attempts[0].checkpoints[0]
    assert moved.endswith(f"{first['uuid']}/best-step=5.ckpt")
    assert set(first["resources"]) == {"best-step=5.ckpt", "metadata.json"}
    names = {name for each in cut.attempts for made in each.checkpoints for name in made["resources"]}
    assert names <= {"best-step=5.ckpt", "last.ckpt", "checkpoint.ckpt", "metadata.json"}
    assert [[step for step, _ in each.metrics("validation")] for each in cut.attempts] == [[5], [10], [10], [15]]


def test_two_nodes_go_on_with_the_same_weights(fit: Any) -> None:
    # Not with `script`, where Lightning finds MPI, by which these two nodes are one.
    entrypoint = [PYTHON, "-m", "trainmaster.launchers.torchrun", PYTHON, "train.py"]
    whole, cut = (fit(nodes=2, entrypoint=entrypoint) for _ in range(2))
    alone, last = whole.through(), cut.through("ask step 7")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    trained(cut, "trainmaster.lightning", "lightning", "torch")
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in cut.metrics("validation")] == [5, 10, 15]  # one report each


def test_validations_within_an_epoch_and_epochs_of_one_batch(fit: Any) -> None:
    options = {"val_check_interval": 4, "max_epochs": 2}  # batches: after the steps 2 and 4 of each epoch
    whole, cut = fit(options), fit(options)
    alone, last = whole.through(), cut.through("ask evaluation 4")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in cut.metrics("validation")] == [2, 4, 7, 9]
    options = {"limit_train_batches": 1, "accumulate_grad_batches": 1, "max_epochs": 6}
    whole, cut = fit(options), fit(options)
    alone, last = whole.through(), cut.through("ask step 3")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert [step for step, _ in cut.metrics("validation")] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_ends_at_the_step_at_which_it_is_asked_to_leave_is_complete(fit: Any) -> None:
    attempt = fit().run("ask step 15")
    assert attempt.status == 0, attempt.output
    assert attempt.printed("WEIGHTS")
    assert not attempt.left
    attempt = fit({"max_steps": 7}).run("ask step 7")
    assert attempt.status == 0, attempt.output
    assert not attempt.left


def test_schedulers_warn_loader_workers_too_and_lightning_requeues_nothing(fit: Any) -> None:
    slurm = {"NTASKS": "1", "JOB_ID": "5", "JOB_NAME": "train", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
    endless = fit({"max_epochs": 100_000, "log_every_n_steps": 1})
    job, master = endless.stage(**{f"SLURM_{name}": value for name, value in slurm.items()})
    node = job.start()
    master.wait(lambda: len(master.kinds("metrics")) > 20)
    everyone = descendants(node.pid)
    assert any("multiprocessing" in name or "train.py" in name for name in everyone.values())
    for pid in (*everyone, node.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
    attempt = endless.ended(job, master, [node])
    assert attempt.status == 0, attempt.output
    assert attempt.left
    assert len(attempt.checkpoints) == 1
    assert "requeue" not in attempt.output


def test_the_search_stops_a_trial_after_its_validation(fit: Any) -> None:
    def decide(master: Any, stream: str, record: Any) -> None:
        if record.get("kind") == "metrics" and record["group"] == "validation" and record["steps_completed"] == 2:
            master.preempt = "early stop"

    attempt = fit({"val_check_interval": 4}).run(decide=decide)
    assert attempt.status == 0, attempt.output
    assert attempt.left
    assert [made["steps_completed"] for made in attempt.checkpoints] == [2]


def test_a_metric_that_the_search_waits_for_in_vain_is_named_beside_the_others(fit: Any) -> None:
    attempt = fit(searcher={"name": "random", "metric": "accuracy"}).run()
    assert attempt.status == 1
    (sentence,) = [line for line in attempt.lines if line.startswith("ValueError: ")]
    assert "the searcher waits for the metric 'accuracy', which lightning does not report" in sentence
    assert "val_loss" in sentence


def test_outside_of_a_job_the_same_script_trains_and_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "leave.py").write_text(LEAVE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [PYTHON, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert 'ARGUMENTS {"width": 8, "lr": 0.5}' in ran.stdout
    assert "WEIGHTS" in ran.stdout


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, with their command lines."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: (Path("/proc") / str(each) / "cmdline").read_text() for each in found - {pid}}
