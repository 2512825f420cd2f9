"""scikit-learn's digits with DeepSpeed ZeRO-2: gradients and the optimizer's state are split among all workers."""

import os

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from trainmaster import core

DEFAULTS = {"learning_rate": 0.002, "hidden": 64, "epochs": 6}
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def main() -> None:
    info = core.get_cluster_info()  # None outside of a job
    hparams = info.trial.hparams if info else DEFAULTS
    torch.manual_seed(info.trial.trial_seed if info else 0)
    distributed = core.DistributedContext.from_deepspeed() if "RANK" in os.environ else None
    if not distributed:
        os.environ.update(ALONE)  # DeepSpeed needs a process group, even of one worker
    if not torch.cuda.is_available():
        # On CPUs DeepSpeed would compile its own operation for collectives; gloo needs no compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()  # nccl with GPUs, else gloo

    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, hparams["hidden"]), nn.ReLU(), nn.Linear(hparams["hidden"], 10))
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=TensorDataset(x[:1437], y[:1437]),
        config={
            "train_micro_batch_size_per_gpu": 16,
            "optimizer": {"type": "Adam", "params": {"lr": hparams["learning_rate"], "torch_adam": True}},
            "zero_optimization": {"stage": 2},
        },
    )

    with core.init(distributed=distributed) as context:
        done = 0
        if info and info.latest_checkpoint:  # this trial ran before: resume from its checkpoint
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                _, state = engine.load_checkpoint(str(path))
            done = state["epoch"]

        for epoch in range(done + 1, hparams["epochs"] + 1):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(engine(inputs.to(engine.device)), targets.to(engine.device))
                engine.backward(loss)
                engine.step()
            with torch.no_grad():
                answers = engine(x[1437:].to(engine.device)).argmax(1).cpu()
            error = (answers != y[1437:]).float().mean()
            # All workers call; the chief's reports count.
            steps = engine.global_steps
            context.train.report_training_metrics(steps, {"loss": loss, "workers": engine.world_size})
            context.train.report_validation_metrics(steps, {"validation_error": error, "epochs": epoch})
            context.train.report_progress(epoch / hparams["epochs"])
            if engine.global_rank == 0:
                print(f"epoch {epoch}: validation error {error:.3f}", flush=True)

            leave = context.preempt.should_preempt()  # all workers get the same answer
            if leave or epoch == hparams["epochs"]:
                # Each worker writes its part of the optimizer's state.
                with context.checkpoint.store_path({"steps_completed": steps}, shard=True) as (path, _):
                    engine.save_checkpoint(str(path), client_state={"epoch": epoch})
            if leave:
                break
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
