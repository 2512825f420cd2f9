"""scikit-learn's digits with DistributedDataParallel: each worker trains on its share, the chief reports."""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from trainmaster import core

DEFAULTS = {"learning_rate": 0.05, "hidden": 64, "epochs": 5}
BATCH = 16  # of each worker


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    seed = info.trial.trial_seed if info else 0
    torch.manual_seed(seed)
    distributed = None
    if "RANK" in os.environ:  # set by torchrun
        dist.init_process_group("gloo")
        distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        train(context, info, hparams, seed)
    if distributed:
        dist.destroy_process_group()


def train(context, info, hparams, seed) -> None:
    rank, size = context.distributed.rank, context.distributed.size
    data = load_digits()
    x = torch.tensor(data.data / 16.0, dtype=torch.float32)
    y = torch.tensor(data.target)
    trained, tested = TensorDataset(x[:1437], y[:1437]), (x[1437:], y[1437:])
    sampler = DistributedSampler(trained, size, rank, seed=seed)
    loader = DataLoader(trained, batch_size=BATCH, sampler=sampler)

    network = nn.Sequential(nn.Linear(64, hparams["hidden"]), nn.ReLU(), nn.Linear(hparams["hidden"], 10))
    first = 0
    if info and info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            saved = torch.load(path / "model.pt", weights_only=True)
        network.load_state_dict(saved["network"])
        first = saved["epoch"]
    model = DistributedDataParallel(network) if size > 1 else network
    optimiser = torch.optim.SGD(model.parameters(), lr=hparams["learning_rate"], momentum=0.9)
    for epoch in range(first + 1, hparams["epochs"] + 1):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, targets in loader:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # averages the gradients over all workers
            optimiser.step()
            total += loss.item()
        steps = epoch * len(loader)
        losses = context.distributed.gather(total / len(loader))
        if rank == 0:
            with torch.no_grad():
                error = (network(tested[0]).argmax(1) != tested[1]).float().mean().item()
            context.train.report_training_metrics(steps, {"loss": sum(losses) / len(losses), "workers": len(losses)})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / hparams["epochs"])
        leave = context.preempt.should_preempt()  # all workers get the same answer
        if rank == 0 and (leave or epoch == hparams["epochs"]):
            with context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
                torch.save({"network": network.state_dict(), "epoch": epoch}, path / "model.pt")
        if leave:
            return


if __name__ == "__main__":
    main()
