"""A small network reads scikit-learn's digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from trainmaster import core
from trainmaster.pytorch import TrainingState
from torch.utils.data import DataLoader, TensorDataset

digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(x[:1437], y[:1437]), batch_size=16, shuffle=True)
state = TrainingState(loader=loader, model=model, optimizer=optimizer)
with core.init(distributed=core.DistributedContext.from_environment()) as context:
    state.restore(context)
    for epoch in state.epochs(4):
        for inputs, targets in state.batches():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            state.steps += 1
            if context.preempt.should_preempt():
                state.save(context)
                raise SystemExit(0)
        context.train.report_training_metrics(state.steps, {"loss": loss.item()})
        print(f"epoch {epoch}: loss {loss.item():.3f}")
