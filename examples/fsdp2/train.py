"""scikit-learn's digits with FSDP2: parameters, gradients and the optimizer's state are divided among all workers."""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainmaster import core
from trainmaster.pytorch import TrainingState

BATCH = 16  # of each worker


def main() -> None:
    hparams = core.apply_hparams({"learning_rate": 0.002, "hidden": 64, "epochs": 6, "seed": 0})
    torch.manual_seed(hparams["seed"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "RANK" in os.environ:  # set by torchrun
        dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    trained = TensorDataset(x[:1437], y[:1437])
    loader = DataLoader(trained, BATCH, sampler=DistributedSampler(trained, dist.get_world_size(), dist.get_rank()))
    model = nn.Sequential(nn.Linear(64, hparams["hidden"]), nn.ReLU(), nn.Linear(hparams["hidden"], 10)).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"])

    state = TrainingState(loader=loader, model=model, optimizer=optimizer)
    with core.DistributedContext.from_environment() as distributed, core.init(distributed=distributed) as context:
        state.restore(context)
        for epoch in state.epochs(hparams["epochs"]):
            for inputs, targets in state.batches():
                loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                state.steps += 1
                if context.preempt.should_preempt():  # all workers get the same answer
                    state.save(context)
                    raise SystemExit(0)
            with torch.no_grad():
                error = (model(x[1437:].to(device)).argmax(1).cpu() != y[1437:]).float().mean().item()
            if distributed.rank == 0:
                metrics = {"loss": loss.item(), "workers": distributed.size}
                context.train.report_training_metrics(state.steps, metrics)
                context.train.report_validation_metrics(state.steps, {"validation_error": error, "epochs": epoch + 1})
                context.train.report_progress((epoch + 1) / hparams["epochs"])
        state.save(context, background=True)  # the end of the context waits for it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
