"""A small network reads scikit-learn's digits."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from trainmaster.accelerate import TrainmasterTracker
from torch.utils.data import DataLoader, TensorDataset

tracker = TrainmasterTracker()
accelerator = Accelerator(cpu=not torch.cuda.is_available(), log_with=tracker)
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
model, optimizer, train = accelerator.prepare(
    model,
    torch.optim.Adam(model.parameters(), lr=2e-3),
    DataLoader(TensorDataset(x[:1437], y[:1437]), batch_size=16, shuffle=True),
)
for epoch in tracker.epochs(accelerator, 4):
    for inputs, targets in tracker.batches(train):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
    tracker.log({"loss": loss.item()})
    print(f"epoch {epoch}: loss {loss.item():.3f}")
