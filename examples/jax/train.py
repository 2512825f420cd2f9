"""scikit-learn's digits with JAX: one process a slot, each holds its share of every batch, `jit` sums over all."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

from trainmaster import core

DEFAULTS = {"learning_rate": 0.2, "hidden": 64, "epochs": 6}
BATCH = 64  # of all workers together


def logits(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], axis=1).mean()


@jax.jit
def step(params, learning_rate, x, y):
    """One step of gradient descent. `x` and `y` are spread over all workers, and the loss is the mean over all."""
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - learning_rate * g, params, gradients), value


def initial(hidden: int, random: np.random.Generator) -> dict:
    w1, w2 = random.normal(0, 0.1, (64, hidden)), random.normal(0, 0.1, (hidden, 10))
    params = {"w1": w1, "b1": np.zeros(hidden), "w2": w2, "b2": np.zeros(10)}
    return {name: value.astype(np.float32) for name, value in params.items()}


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    # The launcher sets torchrun's variables, and the address of JAX's first process.
    distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    if distributed:
        jax.distributed.initialize(num_processes=distributed.size, process_id=distributed.rank)
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    split, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    rank, size = jax.process_index(), jax.process_count()

    digits = load_digits()
    x, y = (digits.data / 16.0).astype(np.float32), digits.target
    seed = info.trial.trial_seed if info else 0
    params, done = initial(hparams["hidden"], np.random.default_rng(seed)), 0

    with core.init(distributed=distributed) as context:
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path, np.load(path / "params.npz") as saved:
                params = dict(saved)
            done = context.checkpoint.get_metadata(info.latest_checkpoint)["epochs"]
        params = jax.device_put(params, same)

        for epoch in range(done + 1, hparams["epochs"] + 1):
            order = np.random.default_rng(seed + epoch).permutation(1437)  # the same on all workers
            for batch in order[: 1437 // BATCH * BATCH].reshape(-1, BATCH):
                own = batch.reshape(size, -1)[rank]
                inputs = jax.make_array_from_process_local_data(split, x[own])
                targets = jax.make_array_from_process_local_data(split, y[own])
                params, value = step(params, hparams["learning_rate"], inputs, targets)
            here = jax.device_get(params)  # the same on all workers
            error = float((logits(here, x[1437:]).argmax(1) != y[1437:]).mean())
            steps = epoch * (1437 // BATCH)
            # All workers call; the chief's reports count.
            context.train.report_training_metrics(steps, {"loss": float(value), "workers": size})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / hparams["epochs"])
            if rank == 0:
                print(f"epoch {epoch}: validation error {error:.3f}", flush=True)

            leave = context.preempt.should_preempt()  # all workers get the same answer
            if rank == 0 and (leave or epoch == hparams["epochs"]):
                with context.checkpoint.store_path({"steps_completed": steps, "epochs": epoch}) as (path, _):
                    np.savez(path / "params.npz", **here)
            if leave:
                return


if __name__ == "__main__":
    main()
