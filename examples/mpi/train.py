"""Logistic regression on scikit-learn's breast cancer data over MPI: each rank's gradient, summed by allreduce."""

import os

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_breast_cancer

from trainmaster import core

DEFAULTS = {"learning_rate": 0.5, "epochs": 40}


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    world = MPI.COMM_WORLD
    # The launcher connects MPI's ranks by PMI, and sets torchrun's variables.
    distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None

    data = load_breast_cancer()
    order = np.random.RandomState(0).permutation(len(data.target))
    x = ((data.data - data.data.mean(0)) / data.data.std(0))[order]
    y = data.target[order]
    own = slice(world.rank, 450, world.size)
    (x_own, y_own), (x_test, y_test) = (x[own], y[own]), (x[450:], y[450:])
    weights, done = np.zeros(x.shape[1]), 0

    with core.init(distributed=distributed) as context:
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                weights = np.load(path / "weights.npy")
            done = context.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"]

        for epoch in range(done + 1, hparams["epochs"] + 1):
            chances = 1 / (1 + np.exp(-x_own @ weights))
            sums = np.append(x_own.T @ (chances - y_own), -np.log(np.where(y_own, chances, 1 - chances)).sum())
            total = np.empty_like(sums)
            world.Allreduce(sums, total, op=MPI.SUM)
            weights -= hparams["learning_rate"] * total[:-1] / 450
            # All ranks call; the chief's reports count.
            error = ((x_test @ weights > 0) != y_test).mean()
            context.train.report_training_metrics(epoch, {"loss": total[-1] / 450, "workers": world.size})
            context.train.report_validation_metrics(epoch, {"validation_error": error})
            context.train.report_progress(epoch / hparams["epochs"])

            leave = context.preempt.should_preempt()  # all ranks get the same answer
            if world.rank == 0 and (leave or epoch == hparams["epochs"]):
                print(f"epoch {epoch}: validation error {error:.3f}", flush=True)
                with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                    np.save(path / "weights.npy", weights)
            if leave:
                return


if __name__ == "__main__":
    main()
