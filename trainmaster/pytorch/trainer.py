"""`init()` and `Trainer`: a script that trains a `PyTorchTrial`, in a job and outside of one."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import warnings
from typing import Any, Dict, Iterator, Optional

import numpy as np
import torch

from trainmaster import core
from trainmaster.core import DistributedContext, PreemptMode, TensorboardMode
from trainmaster.pytorch.backend import Backend, find_backend
from trainmaster.pytorch.context import PyTorchTrialContext
from trainmaster.pytorch.loop import FitPlan
from trainmaster.pytorch.trial import PyTorchTrial
from trainmaster.pytorch.trial_loop import TrialLoop
from trainmaster.pytorch.units import Batch, Epoch, TrainUnit, from_section
from trainmaster.runtime.published import copy_of_files

logger = logging.getLogger("trainmaster.pytorch")

_POLICIES = ("best", "all", "none")


@contextlib.contextmanager
def init(
    *,
    hparams: Optional[Dict[str, Any]] = None,
    exp_conf: Optional[Dict[str, Any]] = None,
    distributed: Optional[DistributedContext] = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
) -> Iterator[PyTorchTrialContext]:
    """Make the context of a `PyTorchTrial`: `with init() as context:`. In a job, the trial's seed is that of Python,
    numpy and torch from here on.

    Args:
        hparams: What `context.get_hparam` returns, also in a job.
        exp_conf: The experiment's configuration, outside of a job.
        distributed: The ranks, outside of a job.
        aggregation_frequency: Batches whose gradients are added up for one optimizer step.
        enable_tensorboard_logging: Whether metrics are written for TensorBoard as well.

    Yields:
        The context, to be used within the block.

    Raises:
        ValueError: `aggregation_frequency` is below 1, or several slots have no launcher.
    """
    if aggregation_frequency < 1:
        raise ValueError("aggregation_frequency must be at least 1, not %r" % (aggregation_frequency,))
    info = core.get_cluster_info()
    in_job = info is not None and info.task_type == "TRIAL"
    backend: Backend = find_backend()
    seed: Optional[int] = None
    if info is not None and in_job:
        slots = max(1, sum(info.container_slot_counts))
        if slots > 1 and type(backend) is Backend:
            raise ValueError(
                "this trial has %d slots and one process: start the script with a launcher, such as `python3 -m "
                "determined.launch.torch_distributed python3 train.py`" % slots
            )
        distributed = backend.connect()
        exp_conf = info.trial._config
        seed = info.trial.trial_seed
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        if info.runtime_info is not None:
            copy_of_files(str(info.runtime_info.run_dir))  # before the training changes them, for its checkpoints
    elif distributed is None and type(backend) is not Backend:
        distributed = backend.connect()
    try:
        with core.init(
            distributed=distributed,
            preempt_mode=PreemptMode.WorkersAskChief,
            tensorboard_mode=TensorboardMode.MANUAL,
        ) as contexts:
            yield PyTorchTrialContext(
                contexts,
                backend,
                seed=seed,
                hparams=hparams,
                config=exp_conf,
                aggregation_frequency=aggregation_frequency,
                initial_batch=info.trial.steps_completed if info is not None and in_job else 0,
                tensorboard=enable_tensorboard_logging,
            )
    finally:
        if distributed is not None:
            distributed.close()
        backend.close()


class BaseTrainer:
    """What trainers of all kinds of trials have in common: `fit`.

    Args:
        trial: The trial.
        context: The one that it was made with.
    """

    kind: type  # of the trial

    def __init__(self, trial: Any, context: Any) -> None:
        if not isinstance(trial, self.kind):
            raise TypeError("Trainer() takes a %s, not a %s" % (self.kind.__name__, type(trial).__name__))
        self._trial: Any = trial
        self._context: Any = context
        self._is_trainer = True  # whether a script of the user's made this

    def _run(self, plan: FitPlan, latest_checkpoint: Optional[str]) -> None:
        raise NotImplementedError

    def configure_profiler(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: `fit(profiling_enabled=True)` profiles."""
        logger.warning("configure_profiler() does nothing: use fit(profiling_enabled=True)")

    def fit(
        self,
        checkpoint_period: Optional[TrainUnit] = None,
        validation_period: Optional[TrainUnit] = None,
        max_length: Optional[TrainUnit] = None,
        reporting_period: Optional[TrainUnit] = None,
        checkpoint_policy: str = "best",
        latest_checkpoint: Optional[str] = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Train, validate and save. Returns early where the job must leave; the work is saved then.

        Args:
            checkpoint_period: How often to save. Default: at the end, and as `checkpoint_policy` says.
            validation_period: How often to validate. Default: at the end.
            max_length: How long to train. Default, in a job: `searcher.max_length` of older configurations.
            reporting_period: How often to report metrics of training. Default: every 100 batches.
            checkpoint_policy: After which validations to save: `best`, those that are better than all before in this
                experiment; `all`; `none`.
            latest_checkpoint: The uuid of the checkpoint to continue from: `det.get_cluster_info().latest_checkpoint`.
            step_zero_validation: Whether to validate before the first batch.
            test_mode: Whether to train and validate one batch and no more, outside of a job.
            profiling_enabled: Whether to record how busy the machine is.

        Raises:
            ValueError: `max_length` is missing, `checkpoint_policy` is none of these, or `test_mode` is set in a job.
            TypeError: `max_length` is no Batch or Epoch of a number.
            InvalidExperiment: The trial cannot be trained as it is written.
            CheckpointError: The checkpoint does not fit the trial.
        """
        if checkpoint_policy not in _POLICIES:
            raise ValueError("checkpoint_policy is one of %s, not %r" % (", ".join(_POLICIES), checkpoint_policy))
        info = self._context._core.info
        in_job = info is not None and info.task_type == "TRIAL"
        searcher: Dict[str, Any] = (info.trial._config.get("searcher") or {}) if info is not None and in_job else {}
        if in_job:
            if test_mode:
                raise ValueError("test_mode trains one batch, which is of no use in a job")
            if info is not None and latest_checkpoint is None and info.latest_checkpoint is not None:
                logger.warning("the training begins anew: fit() was called without latest_checkpoint=")
            max_length = max_length or _older_length(searcher, self._context._hparams)
        elif checkpoint_policy == "best":
            checkpoint_policy = "all"  # nobody knows which is the best one
        if max_length is None:
            raise ValueError("fit(max_length=...) is missing: Epoch(10), or Batch(1000)")
        if not isinstance(max_length, (Batch, Epoch)) or not isinstance(max_length.value, int):
            raise TypeError("max_length must be a Batch or Epoch of a number, not %r" % (max_length,))
        _compare(searcher, max_length)
        never = Batch(sys.maxsize)
        plan = FitPlan(
            max_length=max_length,
            checkpoint_period=checkpoint_period or never,
            validation_period=validation_period or never,
            reporting_period=reporting_period or Batch(100),
            checkpoint_policy=checkpoint_policy,
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
            profiling_enabled=profiling_enabled and in_job,
            searcher_metric=searcher.get("metric"),
            smaller_is_better=bool(searcher.get("smaller_is_better", True)),
            is_search=searcher.get("name", "single") != "single",
        )
        self._run(plan, latest_checkpoint)


class Trainer(BaseTrainer):
    """Trains a `PyTorchTrial`.

    Args:
        trial: The trial.
        context: The one that it was made with.
    """

    kind = PyTorchTrial

    def _run(self, plan: FitPlan, latest_checkpoint: Optional[str]) -> None:
        TrialLoop(self._trial, self._context, plan, latest_checkpoint, self._is_trainer).run()


def _older_length(searcher: Dict[str, Any], hparams: Optional[Dict[str, Any]]) -> Optional[TrainUnit]:
    """Return the length that configurations of releases before 0.38 have, `searcher.max_length`."""
    section = searcher.get("max_length")
    if section is None:
        return None
    warnings.warn("searcher.max_length is deprecated: call fit(max_length=...)", FutureWarning, stacklevel=3)
    if not isinstance(section, dict):
        section = {"batches": section}
    return from_section(section, (hparams or {}).get("global_batch_size"))


def _compare(searcher: Dict[str, Any], length: TrainUnit) -> None:
    """Warn where the search counts a trial's length otherwise than the trial does."""
    metric, most = searcher.get("time_metric"), searcher.get("max_time")
    if metric is None or most is None:
        return
    unit = {"batches": Batch, "epochs": Epoch}.get(metric)
    if unit is None:
        logger.warning("searcher.time_metric is %r: a PyTorchTrial counts batches and epochs", metric)
    elif not isinstance(length, unit) or length.value != most:
        logger.warning(
            "the trial trains for %r, and the search counts up to %s %s (searcher.max_time): it compares trials at "
            "other lengths than you expect",
            length,
            most,
            metric,
        )
