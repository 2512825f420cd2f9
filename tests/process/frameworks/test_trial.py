"""`PyTorchTrial` in real jobs, under Determined's names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained
from tests.support.runtime.trials import LEAVE

ROOT = Path(__file__).resolve().parents[3]

PYTHON = find_python("torch", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with PyTorch and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# 40 items in batches of 4 of each rank: ten batches an epoch on one rank, five on two.
MODEL = """
import os, random
import numpy as np
import torch
from torch import nn
from determined import pytorch
import leave

class Data(torch.utils.data.Dataset):
    def __init__(self, size, noisy):
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
        self.noisy = noisy
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        if os.environ.get("PRINT"):
            print("ITEM", index, flush=True)
        noise = torch.randn(4) + float(np.random.rand()) + random.random() if self.noisy else 0.0
        return self.x[index] + 0.1 * noise, self.x[index].sum()

class Counting(pytorch.PyTorchCallback):
    def __init__(self):
        self.epochs = []
    def on_training_epoch_start(self, epoch_idx):
        self.epochs.append(epoch_idx)
    def on_training_epoch_end(self, epoch_idx):
        print("EPOCHS", self.epochs)
    def state_dict(self):
        return {"epochs": self.epochs}
    def load_state_dict(self, state):
        self.epochs = state["epochs"]

class Worst(pytorch.MetricReducer):
    def __init__(self):
        self.reset()
    def reset(self):
        self.value = 0.0
    def update(self, value):
        self.value = max(self.value, value)
    def per_slot_reduce(self):
        return self.value
    def cross_slot_reduce(self, per_slot_metrics):
        return max(per_slot_metrics)

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("lr")))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30),
            step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        self.worst = context.wrap_reducer(Worst(), name="worst", for_training=False)
        self.all = context.wrap_reducer(lambda values: sum(values), name="sum")
    def build_training_data_loader(self):
        workers = int(os.environ.get("WORKERS", "0"))
        noisy = "QUIET" not in os.environ
        size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(Data(40, noisy), size, shuffle=True, num_workers=workers)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(12, False), self.context.get_per_slot_batch_size())
    def build_callbacks(self):
        return {"counting": Counting()}
    def train_batch(self, batch, epoch_idx, batch_idx):
        leave.at(batch_idx + 1)
        x, y = batch
        loss = ((self.model(x)[:, 0] - y) ** 2).mean()
        self.all.update(float(len(x)))
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=lambda p: nn.utils.clip_grad_norm_(p, 5.0))
        return {"loss": loss}
    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        loss = ((self.model(x)[:, 0] - y) ** 2).mean()
        self.worst.update(loss.item())
        return {"val_loss": loss}
"""
SCRIPT = """
import determined as det
from determined import pytorch
from model_def import Trial
import leave

info = det.get_cluster_info()
with pytorch.init(hparams=info.trial.hparams, exp_conf=info.trial._config) as context:
    trial = Trial(context)
    trainer = pytorch.Trainer(trial, context)
    trainer.fit(
        max_length=pytorch.Epoch(3), validation_period=pytorch.Epoch(1), reporting_period=pytorch.Batch(1),
        checkpoint_policy="none", latest_checkpoint=info.latest_checkpoint,
    )
    if trial.optimizer.state and context.current_train_epoch() == 2 and context.is_epoch_end():
        leave.digest(p.detach().numpy() for p in trial.model.parameters())
"""
TRIAL_CLASS = [PYTHON, "-m", "determined.launch.torch_distributed", "--", "--trial", "model_def:Trial"]
HPARAMS = {"lr": 0.01, "global_batch_size": 4}
SEARCHER = {"name": "single", "metric": "val_loss", "smaller_is_better": True}


@pytest.fixture
def fit(trial: Any) -> Any:
    """`fit(**more)`: a trial of SCRIPT."""

    def make(script: str = SCRIPT, model: str = MODEL, **more: Any) -> Any:
        options = {"python": PYTHON, "hparams": HPARAMS, "searcher": SEARCHER, "files": {"model_def.py": model}, **more}
        return trial(script, **options)

    return make


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_trial_that_was_cut_in_four_ends_with_the_same_weights(fit: Any, workers: str) -> None:
    environment = {"WORKERS": workers}
    whole, cut = fit(environment=environment), fit(environment=environment)
    alone = whole.through()
    last = cut.through("ask step 3", "ask step 10", "kill step 25")
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert last.printed("EPOCHS")[-1] == "[0, 1, 2]"
    assert [step for step, _ in whole.metrics("training")] == list(range(1, 31))
    assert [step for step, _ in whole.metrics("validation")] == [10, 20, 30]
    assert set(whole.metrics("validation")[0][1]) == {"val_loss", "worst", "sum", "batches", "epochs"}
    made = [[each["steps_completed"] for each in attempt.checkpoints] for attempt in cut.attempts]
    assert made == [[3], [10], [], [30]]
    assert set(cut.attempts[0].checkpoints[0]["resources"]) >= {"state_dict.pth", "trial_state.pkl", "load_data.json"}
    trained(cut, "determined.pytorch.PyTorchTrial", "torch")


def test_two_nodes_with_an_uneven_epoch_go_on_with_the_same_weights(fit: Any) -> None:
    """41 items: 21 batches an epoch, of which one node has eleven; the last one is of one item."""
    model = MODEL.replace("Data(40", "Data(41")
    for old, new in {
        "import leave\n": "import leave\nimport torchmetrics\n",
        "        self.all = context": (
            "        self.most = context.wrap_reducer(torchmetrics.MaxMetric(), name='most', for_training=False)\n"
            "        self.all = context"
        ),
        "        self.worst.update(": "        self.most.update(loss)\n        self.worst.update(",
    }.items():
        assert old in model
        model = model.replace(old, new)
    more = {"model": model, "nodes": 2, "environment": {"WORKERS": "1", "PRINT": "1"}, "script": QUIET_END}
    whole, cut = fit(**more), fit(**more)
    alone, last = whole.through(), cut.through("ask step 17")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    for _, metrics in whole.metrics("validation"):
        assert metrics["most"] == metrics["worst"]  # TorchMetrics and our reducer, over both nodes
    trained(cut, "determined.pytorch.PyTorchTrial", "torch")


# Without asking where it is: the number of batches of three epochs is no multiple of the ranks.
QUIET_END = SCRIPT.replace(
    "if trial.optimizer.state and context.current_train_epoch() == 2 and context.is_epoch_end():",
    "if not context._core.preempt.should_preempt():",
)

VARIANTS = {
    "bf16, and all data at once": {
        "        self.model = ": "        context.experimental.use_amp(torch.bfloat16)\n        self.model = ",
        "    def evaluate_batch(self, batch, batch_idx):\n        x, y = batch\n": (
            "    def evaluate_full_dataset(self, data_loader):\n        x, y = next(iter(data_loader))\n"
        ),
    },
    # Without a compiler in the image, the graph alone: the names of its parameters are what matters.
    "compiled, with torch's own loader": {
        "context.wrap_model(nn.Sequential": "context.wrap_model(compiled(nn.Sequential",
        "nn.Linear(8, 1)))": "nn.Linear(8, 1))))",
        "class Trial(": "def compiled(model):\n    return torch.compile(model, backend='eager')\n\nclass Trial(",
        "        self.context = context\n": (
            "        self.context = context\n        context.experimental.disable_dataset_reproducibility_checks()\n"
        ),
        "return pytorch.DataLoader(Data(40, noisy)": "return torch.utils.data.DataLoader(Data(40, noisy)",
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_train_pause_and_go_on(fit: Any, variant: str) -> None:
    model = MODEL
    for old, new in VARIANTS[variant].items():
        assert old in model
        model = model.replace(old, new)
    cut = fit(model=model)
    last = cut.through("ask step 13")
    assert last.printed("WEIGHTS")
    assert [step for step, _ in cut.metrics("training")] == list(range(1, 31))
    assert [step for step, _ in cut.metrics("validation")] == [10, 20, 30]


WRONG = {
    "a method is missing": (
        {"    def train_batch(self, batch, ": "    def training(self, batch, "},
        r"Trial \(.*wrong0.py, line \d+\) lacks train_batch\(\): a trial must define it",
    ),
    "torch's loader": (
        {"return pytorch.DataLoader(Data(40": "return torch.utils.data.DataLoader(Data(40"},
        r"Trial.build_training_data_loader\(\) returned a DataLoader: return a determined.pytorch.DataLoader",
    ),
    "no model": (
        {"context.wrap_model(nn.Sequential(": "(nn.Sequential("},
        r"Trial has no model: its __init__\(\) must call context.wrap_model\(\)",
    ),
    "a reducer": (
        {"lambda values: sum(values)": "lambda values: sum(values) / 0"},
        r"the reducer <lambda>\(\) \(name='sum'\) failed in cross_slot_reduce: float division by zero",
    ),
    "no metric": (
        {'return {"val_loss": loss}': 'return {"other": loss}'},
        r"the searcher waits for the metric 'val_loss', which Trial does not return; it returns: other, sum, worst",
    ),
    "a callback": (
        {"        self.epochs.append(epoch_idx)": "        raise KeyError('mine')"},
        r"KeyError: 'mine'",
    ),
    "both evaluations": (
        {"    def evaluate_batch(": "    def evaluate_full_dataset(self, data_loader): ...\n    def evaluate_batch("},
        r"Trial must define either evaluate_batch\(\) or evaluate_full_dataset\(\), and defines both",
    ),
    "no dict": (
        {'return {"val_loss": loss}': "return 3"},
        r"Trial.evaluate_batch\(\) must return a dict of metrics, not a int",
    ),
}
# Each in a process of its own; torch is imported once.
ONE_BY_ONE = """
import os, traceback
from trainmaster.core import get_cluster_info
from trainmaster.pytorch import entrypoint

for name in get_cluster_info().trial.hparams["trials"]:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = entrypoint.main([name])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    print("STATUS", name, os.WEXITSTATUS(os.waitpid(child, 0)[1]), flush=True)
"""
CONFIG = {
    "min_validation_period": {"epochs": 1},
    "checkpoint_policy": "best",
    "searcher": {**SEARCHER, "max_length": {"epochs": 2}},
}


def test_what_is_wrong_with_a_trial_is_a_sentence(fit: Any) -> None:
    files = {"leave.py": LEAVE, "model_def.py": MODEL}
    sentences = {
        "model_deff:Trial": "the entrypoint model_deff:Trial names the module model_deff, and the experiment's files",
        "model_def:Trail": "names the class Trail, and /.*model_def.py defines the trials Trial",
        "model_def:Data": "which is no subclass of PyTorchTrial or DeepSpeedTrial",
    }
    for number, (changes, sentence) in enumerate(WRONG.values()):
        model = MODEL
        for old, new in changes.items():
            assert old in model
            model = model.replace(old, new)
        files[f"wrong{number}.py"] = model
        sentences[f"wrong{number}:Trial"] = sentence
    attempt = fit(ONE_BY_ONE, files=files, config=CONFIG, hparams={**HPARAMS, "trials": list(sentences)}).run()
    assert attempt.status == 0, attempt.output
    for name, sentence in sentences.items():
        assert attempt.printed(f"STATUS {name}") == ["1"], attempt.output
        assert [line for line in attempt.lines if re.search(sentence, line)], (name, attempt.output)


def test_a_checkpoint_of_another_model_is_refused(fit: Any) -> None:
    cut = fit(
        model=MODEL.replace("Linear(4, 8)", "Linear(4, W)")
        .replace("Linear(8, 1)", "Linear(W, 1)")
        .replace("import leave", "import leave\nW = int(os.environ.get('WIDTH', '8'))")
    )
    cut.run("ask step 2")
    attempt = cut.run(WIDTH="9")
    assert attempt.status == 1
    assert [line for line in attempt.lines if "CheckpointError: the checkpoint does not fit Trial's model 0" in line]


def test_hyperparameters_of_no_use_end_the_trial_early(fit: Any) -> None:
    model = MODEL.replace(
        "        x, y = batch\n        loss",
        "        import determined as det\n        raise det.InvalidHP('no')\n        x, y = batch\n        loss",
        1,
    )
    attempt = fit(model=model).run()
    assert attempt.status == 1
    assert [record["reason"] for record in attempt.master.kinds("early_exit")] == ["EXITED_REASON_INVALID_HP"]


def test_a_trial_is_loaded_from_its_checkpoint(fit: Any, tmp_path: Path) -> None:
    cut = fit()
    cut.run("ask step 2")
    folder = next((tmp_path / "trial1").glob("*/state_dict.pth")).parent
    assert (folder / "code" / "model_def.py").read_text() == MODEL
    program = f"""
from trainmaster.pytorch import load_trial_from_checkpoint_path
trial = load_trial_from_checkpoint_path({str(folder)!r})
print(type(trial).__name__, sum(p.numel() for p in trial.model.parameters()), trial.context.get_hparam("lr"))
"""
    alias = ROOT / "trainmaster" / "determined_alias"
    ran = subprocess.run(
        [PYTHON, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{alias}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "Trial 49 0.01\n", ran.stderr


def test_outside_of_a_job_the_same_class_trains(tmp_path: Path) -> None:
    (tmp_path / "model_def.py").write_text(MODEL)
    (tmp_path / "leave.py").write_text(LEAVE)
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("info.trial.hparams, exp_conf=info.trial._config", "{'lr': 0.01, 'global_batch_size': 4}")
        .replace("latest_checkpoint=info.latest_checkpoint", "test_mode=True")
        .replace("pytorch.Epoch(3)", "pytorch.Batch(5)")
    )
    alias = ROOT / "trainmaster" / "determined_alias"
    environment = {"PYTHONPATH": f"{ROOT}:{alias}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ran = subprocess.run([PYTHON, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (kept,) = (tmp_path / ".local" / "share" / "determined").iterdir()
    assert (kept / "state_dict.pth").is_file()
