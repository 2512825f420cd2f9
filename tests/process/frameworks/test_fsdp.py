"""Models that FSDP2 divides among the ranks, in a bare loop and in a PyTorchTrial, in real jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained

PYTHON = find_python("torch", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with PyTorch and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# SLOW: a disk on which a checkpoint takes as long as some steps.
MODEL = """
import hashlib, os, time
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import torch.distributed.checkpoint.filesystem as filesystem

def network():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    if os.environ.get("SHARDED", "1") == "1":
        mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
    return model

if "SLOW" in os.environ:
    write = filesystem.FileSystemWriter.write_data
    def slow(*arguments, **named):
        time.sleep(float(os.environ["SLOW"]))
        return write(*arguments, **named)
    filesystem.FileSystemWriter.write_data = slow

x = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
DATA = torch.utils.data.TensorDataset(x, x.sum(1))

def weights(model):
    return [p.full_tensor().detach().numpy() if hasattr(p, "full_tensor") else p.detach().numpy()
            for p in model.parameters()]

def digest(model):
    return hashlib.sha256(b"".join(each.tobytes() for each in weights(model))).hexdigest()
"""
# Three steps an epoch; saves in the background after step 4.
LOOP = """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from trainmaster import core
from trainmaster.pytorch import TrainingState
from model import DATA, digest, network, weights
import leave

ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
torch.manual_seed(core.apply_hparams({"seed": 0})["seed"])
model = network()
rank = dist.get_rank() if ranks > 1 else 0
loader = DataLoader(DATA, batch_size=16 // ranks, sampler=DistributedSampler(DATA, ranks, rank))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
state = TrainingState(loader=loader, model=model, optimizer=optimizer, scheduler=scheduler)
with core.DistributedContext.from_environment() as distributed, core.init(distributed=distributed) as context:
    print("RESUMED", state.restore(context), state.steps)
    print("LOADED", digest(model), flush=True)
    for epoch in state.epochs(3):
        for x, y in state.batches():
            leave.at(state.steps + 1)
            optimizer.zero_grad()
            loss = ((model(x)[:, 0] - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            state.steps += 1
            context.train.report_training_metrics(state.steps, {"loss": loss.item()})
            if context.preempt.should_preempt():
                state.save(context)
                raise SystemExit(0)
            if state.steps == 4 and "BACKGROUND" in os.environ:
                state.save(context, background=True)
                print("GOES ON", digest(model), flush=True)
    leave.digest(weights(model))
if ranks > 1:
    dist.destroy_process_group()
"""
TRIAL = """
import os
import torch
from determined import pytorch
from model import DATA, network, weights
import leave

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        if "BACKGROUND" in os.environ:
            context.experimental.save_in_background()
        self.model = context.wrap_model(network())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 9),
            pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
    def build_training_data_loader(self):
        return pytorch.DataLoader(DATA, batch_size=8, shuffle=True)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(DATA, batch_size=8)
    def build_callbacks(self):
        return {"told": Told()}
    def train_batch(self, batch, epoch_idx, batch_idx):
        leave.at(batch_idx + 1)
        x, y = batch
        loss = ((self.model(x)[:, 0] - y) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}
    def evaluate_batch(self, batch):
        x, y = batch
        return {"val_loss": ((self.model(x)[:, 0] - y) ** 2).mean()}

class Told(pytorch.PyTorchCallback):
    def on_checkpoint_upload_end(self, uuid):
        print("TOLD", uuid, flush=True)
"""
FIT = """
import torch
import determined as det
from determined import pytorch
from model import weights
from model_def import Trial
import leave

info = det.get_cluster_info()
with pytorch.init() as context:
    trial = Trial(context)
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Epoch(3), validation_period=pytorch.Epoch(1), reporting_period=pytorch.Batch(1),
        checkpoint_period=pytorch.Batch(4), checkpoint_policy="none", latest_checkpoint=info.latest_checkpoint)
    if context.current_train_epoch() == 2 and context.is_epoch_end():
        leave.digest(weights(trial.model))
"""


@pytest.fixture
def fit(trial: Any) -> Any:
    def make(script: str, ranks: int = 2, **more: Any) -> Any:
        options = {
            "python": PYTHON,
            "ranks": ranks,
            "searcher": {"name": "single", "metric": "val_loss"},
            "files": {"model.py": MODEL, "model_def.py": TRIAL},
            **more,
        }
        return trial(script, **options)

    return make


def test_a_bare_loop_ends_with_the_same_weights_and_writes_while_it_trains(fit: Any) -> None:
    whole, cut = fit(LOOP), fit(LOOP)
    alone = whole.through()
    # The files take longer than the rest of the training: the script's end waits for them, and so does a request.
    asked = cut.run("ask step 6", BACKGROUND="1", SLOW="2")
    assert (asked.status, asked.left) == (0, True), asked.output
    assert [each["steps_completed"] for each in asked.checkpoints] == [4, 6]
    for each in asked.checkpoints:
        assert {"training.pt", "sharded/.metadata", "sharded/__0_0.distcp", "sharded/__1_0.distcp"} <= set(
            each["resources"]
        )
    last = cut.run()
    assert last.printed("RESUMED") == ["True 6"] * 2, last.output
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(alone.printed("WEIGHTS")) == 2
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    trained(cut, "trainmaster.pytorch.TrainingState, fully_shard", "torch")

    # What was written meanwhile is the state of step 4, and one process continues from it.
    other = fit(LOOP, environment={"BACKGROUND": "1"})
    assert other.run(SLOW="1").status == 0
    assert [each["steps_completed"] for each in other.attempts[0].checkpoints] == [4]
    other.ranks = 1
    other._entrypoint = [PYTHON, "train.py"]
    single = other.run(SHARDED="0")
    assert single.printed("RESUMED") == ["True 4"], single.output
    assert single.printed("LOADED") == other.attempts[0].printed("GOES ON")[:1]
    assert [step for step, _ in single.metrics("training")] == [5, 6, 7, 8, 9]


def test_a_checkpoint_that_is_not_written_yet_does_not_count(fit: Any) -> None:
    cut = fit(LOOP, environment={"BACKGROUND": "1"})
    killed = cut.run("kill step 7", SLOW="60")
    assert killed.status != 0
    assert killed.printed("GOES ON")
    assert killed.checkpoints == []
    assert cut.run().printed("RESUMED") == ["False 0"] * 2


def test_a_trial_ends_with_the_same_weights(fit: Any) -> None:
    whole, cut = fit(FIT), fit(FIT, environment={"BACKGROUND": "1", "SLOW": "0.5"})
    alone = whole.through()
    last = cut.through("ask step 5")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    for group in ("training", "validation"):
        assert dict(cut.metrics(group)) == dict(whole.metrics(group))
    assert [made["steps_completed"] for made in alone.checkpoints] == [4, 8, 9]
    stored = [made["uuid"] for each in cut.attempts for made in each.checkpoints]
    assert [made["steps_completed"] for each in cut.attempts for made in each.checkpoints] == [4, 5, 8, 9]
    told = [uuid for each in cut.attempts for uuid in each.printed("TOLD")]
    assert sorted(told) == sorted(2 * stored)
    trained(cut, "determined.pytorch.PyTorchTrial, fully_shard", "torch")


def test_what_cannot_be_is_said_in_a_sentence(fit: Any) -> None:
    plain = fit(LOOP, ranks=1, environment={"SHARDED": "0", "BACKGROUND": "1"})
    attempt = plain.run()
    assert attempt.status == 1
    assert "save(background=True) needs a model that is sharded with fully_shard()" in attempt.output
    plain.environment.pop("BACKGROUND")
    plain.run("ask step 2")
    plain.ranks, plain._entrypoint = 2, [PYTHON, "-m", "trainmaster.launchers.script", PYTHON, "train.py"]
    attempt = plain.run(SHARDED="1")
    assert attempt.status == 1
    assert "the models are sharded, and those of the checkpoint in" in attempt.output
