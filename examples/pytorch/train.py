"""A small convolutional network on scikit-learn's digits: PyTorch with the Core API, one process on one slot."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainmaster import core

DEFAULTS = {"learning_rate": 0.002, "channels": 16, "epochs": 6}


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    torch.manual_seed(info.trial.trial_seed if info else 0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    digits = load_digits()
    x = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[:1437], y[:1437]), batch_size=32, shuffle=True)
    x_test, y_test = x[1437:].to(device), y[1437:].to(device)

    channels = hparams["channels"]
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * channels, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"])

    with core.init() as context:
        done = 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                saved = torch.load(path / "state.pt", map_location=device, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            done = saved["epoch"]

        for epoch in range(done + 1, hparams["epochs"] + 1):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
                loss.backward()
                optimizer.step()
            steps = epoch * len(loader)
            with torch.no_grad():
                error = (model(x_test).argmax(1) != y_test).float().mean()
            context.train.report_training_metrics(steps, {"loss": loss})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / hparams["epochs"])
            print(f"epoch {epoch}: validation error {error:.3f}", flush=True)

            leave = context.preempt.should_preempt()
            if leave or epoch == hparams["epochs"]:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                with context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
                    torch.save(state, path / "state.pt")
            if leave:
                return


if __name__ == "__main__":
    main()
