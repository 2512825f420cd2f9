"""scikit-learn's digits as a trial class. `from determined import pytorch` finds the same names in a job."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from trainmaster import pytorch


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        hidden = context.get_hparam("hidden")
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10))
        )
        optimizer = torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        self.optimizer = context.wrap_optimizer(optimizer)
        digits = load_digits()
        self.x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
        self.y = torch.tensor(digits.target)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        data = TensorDataset(self.x[:1437], self.y[:1437])
        return pytorch.DataLoader(data, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(self.x[1437:], self.y[1437:]), batch_size=60)

    def train_batch(self, batch, epoch_idx: int, batch_idx: int) -> dict:
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "workers": self.context.distributed.size}

    def evaluate_batch(self, batch, batch_idx: int) -> dict:
        inputs, targets = batch
        return {"validation_error": (self.model(inputs).argmax(1) != targets).float().mean()}
