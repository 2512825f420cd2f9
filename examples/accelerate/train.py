"""scikit-learn's digits with Hugging Face Accelerate: the same loop on one slot and on many nodes."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainmaster.accelerate import TrainmasterTracker
from trainmaster.core import apply_hparams

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}
BATCH = 16  # of each worker


def main() -> None:
    hparams = apply_hparams(DEFAULTS)
    set_seed(**apply_hparams(set_seed, seed=0))
    tracker = TrainmasterTracker()
    # Finds the other workers by torchrun's variables; without GPUs only if it is told to use CPUs.
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), log_with=tracker)
    accelerator.init_trackers("digits", config=hparams)

    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, hparams["hidden"]), nn.ReLU(), nn.Linear(hparams["hidden"], 10))
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"]),
        DataLoader(TensorDataset(x[:1437], y[:1437]), batch_size=BATCH, shuffle=True),
        DataLoader(TensorDataset(x[1437:], y[1437:]), batch_size=120),
    )

    for epoch in tracker.epochs(accelerator, hparams["epochs"]):
        for inputs, targets in tracker.batches(train_loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)  # averages the gradients over all workers
            optimizer.step()
        wrong = []
        with torch.no_grad():
            for inputs, targets in test_loader:
                wrong.append(accelerator.gather_for_metrics(model(inputs).argmax(1) != targets))
        error = torch.cat(wrong).float().mean().item()
        accelerator.log({"loss": loss.item(), "workers": accelerator.num_processes})
        accelerator.log({"validation_error": error, "epochs": epoch + 1})
        accelerator.print(f"epoch {epoch + 1}: validation error {error:.3f}")
    tracker.save()
    accelerator.end_training()


if __name__ == "__main__":
    main()
