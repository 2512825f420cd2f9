"""scikit-learn's digits as a DeepSpeedTrial. In a job, `determined.pytorch.deepspeed` has the same names."""

from collections.abc import Iterator

import deepspeed as ds
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from trainmaster import pytorch
from trainmaster.pytorch import deepspeed


class DigitsTrial(deepspeed.DeepSpeedTrial):
    def __init__(self, context: deepspeed.DeepSpeedTrialContext) -> None:
        self.context = context
        hidden, rate = context.get_hparam("hidden"), context.get_hparam("learning_rate")
        model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10))
        engine, *_ = ds.initialize(
            model=model,
            model_parameters=model.parameters(),
            config={
                "train_micro_batch_size_per_gpu": 16,
                "optimizer": {
                    "type": "Adam",
                    "params": {"lr": rate, "torch_adam": True},
                },
                "zero_optimization": {"stage": 2},
            },
        )
        self.engine = context.wrap_model_engine(engine)
        digits = load_digits()
        self.x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
        self.y = torch.tensor(digits.target)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(self.x[:1437], self.y[:1437]), batch_size=16, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(self.x[1437:], self.y[1437:]), batch_size=16)

    def train_batch(self, dataloader_iter: Iterator, epoch_idx: int, batch_idx: int) -> dict:
        inputs, targets = self.context.to_device(next(dataloader_iter))
        loss = nn.functional.cross_entropy(self.engine(inputs), targets)
        self.engine.backward(loss)
        self.engine.step()
        return {"loss": loss, "workers": self.context.distributed.size}

    def evaluate_batch(self, dataloader_iter: Iterator, batch_idx: int) -> dict:
        inputs, targets = self.context.to_device(next(dataloader_iter))
        return {"validation_error": (self.engine(inputs).argmax(1) != targets).float().mean()}
