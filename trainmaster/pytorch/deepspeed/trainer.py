"""`init()` and `Trainer` of a `DeepSpeedTrial`."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from typing import Any, Dict, Iterator, Optional

import deepspeed
import numpy as np
import torch

from trainmaster import core
from trainmaster.core import DistributedContext, PreemptMode, TensorboardMode
from trainmaster.pytorch.deepspeed.context import DeepSpeedTrialContext
from trainmaster.pytorch.deepspeed.loop import EngineLoop
from trainmaster.pytorch.deepspeed.trial import DeepSpeedTrial
from trainmaster.pytorch.loop import FitPlan
from trainmaster.pytorch.trainer import BaseTrainer
from trainmaster.runtime.published import copy_of_files

# DeepSpeed needs a process group, even of one rank.
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@contextlib.contextmanager
def init(
    *,
    hparams: Optional[Dict[str, Any]] = None,
    exp_conf: Optional[Dict[str, Any]] = None,
    distributed: Optional[DistributedContext] = None,
    enable_tensorboard_logging: bool = True,
) -> Iterator[DeepSpeedTrialContext]:
    """Make the context of a `DeepSpeedTrial`: `with init() as context:`. DeepSpeed's ranks connect, unless
    DET_MANUAL_INIT_DISTRIBUTED is set; in a job, the trial's seed is that of Python, numpy and torch from here on.

    Args:
        hparams: What `context.get_hparam` returns, also in a job.
        exp_conf: The experiment's configuration, outside of a job.
        distributed: The ranks, outside of a job.
        enable_tensorboard_logging: Whether metrics are written for TensorBoard as well.

    Yields:
        The context, to be used within the block.

    Raises:
        ValueError: Several slots have no launcher.
    """
    info = core.get_cluster_info()
    in_job = info is not None and info.task_type == "TRIAL"
    launched = os.environ.get("WORLD_SIZE", "1") != "1"
    seed: Optional[int] = None
    if info is not None and in_job:
        slots = max(1, sum(info.container_slot_counts))
        if slots > 1 and not launched:
            raise ValueError(
                "this trial has %d slots and one process: start the script with a launcher, such as `python3 -m "
                "determined.launch.deepspeed python3 train.py`" % slots
            )
        exp_conf, seed = info.trial._config, info.trial.trial_seed
    if not os.environ.get("DET_MANUAL_INIT_DISTRIBUTED"):
        if "RANK" not in os.environ:
            os.environ.update({**_ALONE, "MASTER_PORT": str(_free_port())})
        if not torch.cuda.is_available():
            # On CPUs DeepSpeed would compile an operation of its own for collectives; gloo needs no compiler.
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(auto_mpi_discovery=False)
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
    if info is not None and info.runtime_info is not None and in_job:
        copy_of_files(str(info.runtime_info.run_dir))  # before the training changes them, for its checkpoints
    if launched and distributed is None:
        distributed = DistributedContext.from_environment()
    try:
        with core.init(
            distributed=distributed,
            preempt_mode=PreemptMode.WorkersAskChief,
            tensorboard_mode=TensorboardMode.MANUAL,
        ) as contexts:
            yield DeepSpeedTrialContext(
                contexts,
                seed=seed,
                hparams=hparams,
                config=exp_conf,
                initial_batch=info.trial.steps_completed if info is not None and in_job else 0,
                tensorboard=enable_tensorboard_logging,
            )
    finally:
        if distributed is not None:
            distributed.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Trainer(BaseTrainer):
    """Trains a `DeepSpeedTrial`. `fit` is that of `determined.pytorch.Trainer`.

    Args:
        trial: The trial.
        context: The one that it was made with.
    """

    kind = DeepSpeedTrial

    def _run(self, plan: FitPlan, latest_checkpoint: Optional[str]) -> None:
        EngineLoop(self._trial, self._context, plan, latest_checkpoint).run()
