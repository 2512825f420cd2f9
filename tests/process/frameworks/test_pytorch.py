"""A bare PyTorch loop with `TrainingState`, and Accelerate's with our tracker, in real jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process.frameworks.conftest import EARLIER_RELEASES, earlier
from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained

PYTHON = find_python("torch", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
ACCELERATE = find_python("accelerate", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with PyTorch and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]
needs_accelerate = pytest.mark.skipif(not ACCELERATE, reason="no Python with accelerate: set TRAINMASTER_TORCH_PYTHON")

# 24 items a rank, in batches of 4: six steps an epoch. Augmented with random numbers of each kind.
DATA = """
import random
import numpy as np
import torch

class Data(torch.utils.data.Dataset):
    def __init__(self, size):
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        noise = torch.randn(4) + float(np.random.rand()) + random.random()
        return self.x[index] + 0.1 * noise, self.x[index].sum()

def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
"""
LOOP = """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from trainmaster import core
from trainmaster.pytorch import TrainingState
from data import Data, network
import leave

size = int(os.environ.get("WORLD_SIZE", "1"))
if size > 1:
    dist.init_process_group("gloo")
hparams = core.apply_hparams({"lr": 0.5, "seed": 0})
torch.manual_seed(hparams["seed"])
model = network()
if size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
data = Data(24 * size)
sampler = DistributedSampler(data, seed=3) if size > 1 else None
loader = DataLoader(data, batch_size=4, shuffle=sampler is None, sampler=sampler, num_workers=1)
optimizer = torch.optim.Adam(model.parameters(), lr=hparams["lr"])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
scaler = torch.amp.GradScaler("cpu")
state = TrainingState(loader=loader, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
with core.DistributedContext.from_environment() as distributed, core.init(distributed=distributed) as context:
    print("RESUMED", state.restore(context), state.steps)
    for epoch in state.epochs(3):
        for x, y in state.batches():
            leave.at(state.steps + 1)
            optimizer.zero_grad()
            loss = ((model(x)[:, 0] - y) ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            state.steps += 1
            context.train.report_training_metrics(state.steps, {"loss": loss.item()})
            if context.preempt.should_preempt():
                state.save(context)
                raise SystemExit(0)
            if state.steps % 8 == 0:
                state.save(context)
leave.digest(p.detach().numpy() for p in model.parameters())
if size > 1:
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("nodes", "ways"), [(1, ["ask step 3", "kill step 11"]), (2, ["ask step 8"])])
def test_a_bare_loop_that_was_cut_ends_with_the_same_weights(trial: Any, nodes: int, ways: list[str]) -> None:
    def make() -> Any:
        return trial(LOOP, python=PYTHON, nodes=nodes, files={"data.py": DATA}, hparams={"lr": "1e-2"})

    whole, cut = make(), make()
    alone, last = whole.through(), cut.through(*ways)
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    assert set(last.printed("RESUMED")) == {"True 8"}
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert [step for step, _ in whole.metrics("training")] == list(range(1, 19))
    (stored, *_) = cut.attempts[0].checkpoints
    assert set(stored["resources"]) == {"training.pt", "metadata.json"}
    trained(cut, "trainmaster.pytorch.TrainingState", "torch")


def test_a_checkpoint_of_another_model_is_refused_with_a_sentence(trial: Any) -> None:
    files = {
        "data.py": DATA.replace("Linear(4, 8)", 'Linear(4, int(os.environ.get("WIDTH", "8")))')
        .replace("8, 1", 'int(os.environ.get("WIDTH", "8")), 1')
        .replace("import random", "import os, random")
    }
    cut = trial(LOOP, python=PYTHON, files=files)
    cut.run("ask step 2")
    attempt = cut.run(WIDTH="9")
    assert attempt.status == 1
    (sentence,) = [line for line in attempt.lines if "CheckpointError: " in line]
    assert f"checkpoint {cut.attempts[0].checkpoints[0]['uuid']} does not fit this script's model" in sentence


ACCELERATED = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from trainmaster import core
from trainmaster.accelerate import TrainmasterTracker
from data import Data, network
import leave

hparams = core.apply_hparams({"lr": 0.5, "seed": 0})
torch.manual_seed(hparams["seed"])
tracker = TrainmasterTracker()
accelerator = Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=2)
accelerator.init_trackers("digits", config=hparams)
model = network()
data = Data(24 * accelerator.num_processes)
loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1)
optimizer = torch.optim.Adam(model.parameters(), lr=hparams["lr"])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for epoch in tracker.epochs(accelerator, 3):
    print("IN EPOCH", epoch, tracker.steps)
    for x, y in tracker.batches(loader):
        with accelerator.accumulate(model):
            if accelerator.sync_gradients:
                leave.at(tracker.steps)
            loss = ((model(x)[:, 0] - y) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.log({"train_loss": loss.item()})
        if accelerator.sync_gradients and tracker.steps == 5:
            tracker.save()
    accelerator.log({"val_loss": 1.0 / (epoch + 1), "lr": scheduler.get_last_lr()[0]})
accelerator.end_training()
leave.digest(p.detach().numpy() for p in model.parameters())
"""


@needs_accelerate
@pytest.mark.parametrize(
    ("nodes", "ways", "release"),
    [
        (1, ["ask step 2", "kill step 8"], {}),
        (2, ["ask step 2"], {}),
        pytest.param(1, ["ask step 2"], EARLIER_RELEASES, marks=earlier),
    ],
)
def test_accelerate_that_was_cut_ends_with_the_same_weights(
    trial: Any, nodes: int, ways: list[str], release: Any
) -> None:
    """Two batches a step: three steps an epoch."""

    def make() -> Any:
        searcher = {"name": "single", "metric": "val_loss"}
        return trial(
            ACCELERATED,
            python=PYTHON,
            nodes=nodes,
            files={"data.py": DATA},
            hparams={"lr": 0.01},
            searcher=searcher,
            environment=release,
        )

    whole, cut = make(), make()
    alone, last = whole.through(), cut.through(*ways)
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    assert set(last.printed("IN EPOCH")) == ({"1 5", "2 6"} if "kill step 8" in ways else {"0 2", "1 3", "2 6"})
    trained(cut, "trainmaster.accelerate", "accelerate", "torch")
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert [record["progress"] for record in alone.master.kinds("progress")][-1] == 1.0
    assert (
        dict(cut.metrics("validation"))
        == dict(whole.metrics("validation"))
        == {
            3: {"val_loss": 1.0},
            6: {"val_loss": 0.5},
            9: {"val_loss": 1 / 3},
        }
    )
