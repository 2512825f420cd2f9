"""A small network reads scikit-learn's digits."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from trainmaster.lightning import TrainmasterCallback, latest_checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Reader(L.LightningModule):
    def __init__(self, hidden: int = 64, learning_rate: float = 2e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 10))

    def training_step(self, batch, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx: int) -> None:
        wrong = self.network(batch[0]).argmax(1) != batch[1]
        self.log("validation_error", wrong.float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)


digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1437], y[:1437]), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(x[1437:], y[1437:]), batch_size=120)
model = Reader()
trainer = L.Trainer(max_epochs=4, callbacks=[TrainmasterCallback()])
trainer.fit(model, train, test, ckpt_path=latest_checkpoint())
