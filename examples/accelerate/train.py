"""scikit-learn's digits with Hugging Face Accelerate: the same loop on one slot and on many nodes."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainmaster import core

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}
BATCH = 16  # of each worker


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    set_seed(info.trial.trial_seed % 2**32 if info else 0)
    # Finds the other workers by torchrun's variables; without GPUs only if it is told to use CPUs.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None

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

    with core.init(distributed=distributed) as context:
        done = 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                accelerator.load_state(str(path))
                done = context.checkpoint.get_metadata(info.latest_checkpoint)["epochs"]

        for epoch in range(done + 1, hparams["epochs"] + 1):
            for inputs, targets in train_loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)  # averages the gradients over all workers
                optimizer.step()
            wrong = []
            with torch.no_grad():
                for inputs, targets in test_loader:
                    wrong.append(accelerator.gather_for_metrics(model(inputs).argmax(1) != targets))
            error = torch.cat(wrong).float().mean()
            steps = epoch * len(train_loader)
            # All workers call; the chief's reports count.
            context.train.report_training_metrics(steps, {"loss": loss, "workers": accelerator.num_processes})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / hparams["epochs"])
            accelerator.print(f"epoch {epoch}: validation error {error:.3f}")

            leave = context.preempt.should_preempt()  # all workers get the same answer
            if leave or epoch == hparams["epochs"]:
                # Each worker brings its part: Accelerate saves the random state of every one.
                metadata = {"steps_completed": steps, "epochs": epoch}
                with context.checkpoint.store_path(metadata, shard=True) as (path, _):
                    accelerator.save_state(str(path))
            if leave:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
