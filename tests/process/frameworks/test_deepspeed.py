"""`DeepSpeedTrial` in real jobs, under Determined's names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.process.frameworks.test_trial import ONE_BY_ONE, TRIAL_CLASS
from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained

PYTHON = find_python("deepspeed", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with DeepSpeed and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with deepspeed: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# 48 items in micro batches of 4, two of them a step: six steps an epoch on one rank, three on two.
MODEL = """
import os
import deepspeed
import torch
from torch import nn
from determined import pytorch
from determined.pytorch import deepspeed as det_ds
import leave

class Trial(det_ds.DeepSpeedTrial):
    def __init__(self, context):
        self.context = context
        config = det_ds.overwrite_deepspeed_config(
            {
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 2,
                "optimizer": {"type": "Adam", "params": {"lr": 0.5, "torch_adam": True}},
                "zero_optimization": {"stage": int(os.environ.get("STAGE", "1"))},
            },
            {"optimizer": {"params": {"lr": context.get_hparam("lr")}}},
        )
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        self.engine = context.wrap_model_engine(engine)
        self.loss = nn.MSELoss()
    def _data(self, size):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.TensorDataset(x, x.sum(1))
    def build_training_data_loader(self):
        return pytorch.DataLoader(self._data(48), self.context.get_train_micro_batch_size_per_gpu(), shuffle=True)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(self._data(16), self.context.get_train_micro_batch_size_per_gpu())
    def train_batch(self, dataloader_iter, epoch_idx, batch_idx):
        leave.at(batch_idx + 1)
        x, y = self.context.to_device(next(dataloader_iter))
        loss = self.loss(self.engine(x)[:, 0], y)
        self.engine.backward(loss)
        self.engine.step()
        return {"loss": loss}
    def evaluate_batch(self, dataloader_iter, batch_idx):
        x, y = self.context.to_device(next(dataloader_iter))
        return {"val_loss": self.loss(self.engine(x)[:, 0], y)}
"""
SCRIPT = """
import determined as det
from determined import pytorch
from determined.pytorch import deepspeed as det_ds
from model_def import Trial
import leave

info = det.get_cluster_info()
with det_ds.init(hparams=info.trial.hparams, exp_conf=info.trial._config) as context:
    trial = Trial(context)
    det_ds.Trainer(trial, context).fit(
        max_length=pytorch.Epoch(3), validation_period=pytorch.Epoch(1), reporting_period=pytorch.Batch(1),
        checkpoint_policy="none", latest_checkpoint=info.latest_checkpoint,
    )
    if context.current_train_epoch() == 2 and context.is_epoch_end():
        import deepspeed
        with deepspeed.zero.GatheredParameters(list(trial.engine.module.parameters())):
            leave.digest(p.detach().numpy() for p in trial.engine.module.parameters())
"""
LAUNCH = [PYTHON, "-m", "trainmaster.launchers.deepspeed", PYTHON, "train.py"]
LAUNCHER = [PYTHON, "-m", "determined.launch.deepspeed", "--trial", "model_def:Trial"]
SEARCHER = {"name": "single", "metric": "val_loss", "smaller_is_better": True}


@pytest.fixture
def fit(trial: Any) -> Any:
    """`fit(stage of ZeRO, **more)`: a trial of SCRIPT."""

    def make(zero: int, model: str = MODEL, script: str = SCRIPT, **more: Any) -> Any:
        options = {
            "python": PYTHON,
            "hparams": {"lr": 0.01},
            "searcher": SEARCHER,
            "files": {"model_def.py": model},
            "environment": {"STAGE": str(zero), "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"},
            **more,
        }
        return trial(script, **options)

    return make


@pytest.mark.parametrize(("zero", "ranks"), [(1, 1), (3, 2)])
def test_a_trial_that_was_cut_ends_with_the_same_weights(fit: Any, zero: int, ranks: int) -> None:
    more = {"ranks": ranks, "entrypoint": LAUNCH if ranks > 1 else [PYTHON, "train.py"]}
    whole, cut = fit(zero, **more), fit(zero, **more)
    alone = whole.through()
    last = cut.through("ask step 2")
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert len(set(last.printed("WEIGHTS"))) == 1
    steps = 18 // ranks
    assert [step for step, _ in whole.metrics("training")] == list(range(1, steps + 1))
    assert [step for step, _ in whole.metrics("validation")] == [steps // 3, 2 * steps // 3, steps]
    assert "det_state_dict_rank0.pth" in cut.attempts[0].checkpoints[0]["resources"]
    trained(cut, "determined.pytorch.deepspeed.DeepSpeedTrial", "deepspeed", "torch")


@pytest.mark.parametrize("launcher", [LAUNCHER, TRIAL_CLASS])
def test_a_trial_class_as_the_entrypoint(fit: Any, launcher: list[str]) -> None:
    """By its launcher, and as `entrypoint: model_def:Trial` starts it: by torchrun, also alone."""
    config = {"min_validation_period": {"epochs": 1}, "searcher": {**SEARCHER, "max_length": {"batches": 7}}}
    attempt = fit(1, entrypoint=launcher, config=config).run()
    assert attempt.status == 0, attempt.output
    assert [step for step, _ in attempt.metrics("validation")] == [6, 7]


# A pipeline of two stages, each on one rank.
PIPELINE = """
import deepspeed
import torch
from torch import nn
from deepspeed.pipe import PipelineModule
from determined import pytorch
from determined.pytorch import deepspeed as det_ds
import leave

class Trial(det_ds.DeepSpeedTrial):
    def __init__(self, context):
        self.context = context
        layers = [nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1), nn.Flatten(0)]
        model = PipelineModule(layers=layers, num_stages=2, loss_fn=nn.MSELoss(), partition_method="uniform")
        engine, _, _, _ = deepspeed.initialize(
            model=model,
            model_parameters=[p for p in model.parameters() if p.requires_grad],
            config={
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 2,
                "optimizer": {"type": "Adam", "params": {"lr": context.get_hparam("lr"), "torch_adam": True}},
            },
        )
        self.engine = context.wrap_model_engine(engine)
    def _data(self, size):
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.TensorDataset(x, x.sum(1))
    def build_training_data_loader(self):
        return pytorch.DataLoader(self._data(48), self.context.get_train_micro_batch_size_per_gpu(), shuffle=True)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(self._data(16), self.context.get_train_micro_batch_size_per_gpu())
    def train_batch(self, dataloader_iter, epoch_idx, batch_idx):
        leave.at(batch_idx + 1)
        return {"loss": self.engine.train_batch(data_iter=dataloader_iter)}
    def evaluate_batch(self, dataloader_iter, batch_idx):
        return {"val_loss": self.engine.eval_batch(data_iter=dataloader_iter)}
"""


def test_a_pipeline_that_was_cut_ends_with_the_same_weights(fit: Any) -> None:
    whole, cut = (fit(0, model=PIPELINE, ranks=2, entrypoint=LAUNCH) for _ in range(2))
    alone, last = whole.through(), cut.through("ask step 2")
    assert sorted(last.printed("WEIGHTS")) == sorted(alone.printed("WEIGHTS"))
    assert len(set(alone.printed("WEIGHTS"))) == 2  # each rank has a half
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in whole.metrics("training")] == list(range(1, 19))


WRONG = {
    "no engine": (
        {"self.engine = context.wrap_model_engine(engine)": "self.engine = engine"},
        r"the batch sizes are those of an engine|has no engine: its __init__\(\) must call context.wrap_model_engine",
    ),
    "half a step": (
        {"        self.loss = nn": "        context.disable_auto_grad_accumulation()\n        self.loss = nn"},
        r"Trial.train_batch\(\) has trained 1 micro batches, which is no multiple of the 2 of an optimizer step",
    ),
}


def test_what_is_wrong_with_a_trial_is_a_sentence(fit: Any) -> None:
    files, names = {"model_def.py": MODEL}, []
    for number, (changes, _) in enumerate(WRONG.values()):
        model = MODEL
        for old, new in changes.items():
            assert old in model
            model = model.replace(old, new)
        files[f"wrong{number}.py"] = model
        names.append(f"wrong{number}:Trial")
    config = {"searcher": {**SEARCHER, "max_length": {"batches": 2}}}
    script = ONE_BY_ONE.replace("import os,", "import deepspeed, os,")
    attempt = fit(1, script=script, files=files, config=config, hparams={"lr": 0.01, "trials": names}).run()
    assert attempt.status == 0, attempt.output
    for name, (_, sentence) in zip(names, WRONG.values(), strict=True):
        assert attempt.printed(f"STATUS {name}") == ["1"], attempt.output
        assert [line for line in attempt.lines if re.search(sentence, line)], (name, attempt.output)


def test_a_checkpoint_of_another_model_is_refused(fit: Any) -> None:
    model = MODEL.replace("nn.Linear(4, 8)", "nn.Linear(4, W)").replace("nn.Linear(8, 1)", "nn.Linear(W, 1)")
    cut = fit(1, model=model.replace("import leave", "import leave\nW = int(os.environ.get('WIDTH', '8'))"))
    cut.run("ask step 2")
    attempt = cut.run(WIDTH="9")
    assert attempt.status == 1
    assert [line for line in attempt.lines if "CheckpointError" in line], attempt.output
