"""`TrialContext`: what every trial class gets when it is made: hyperparameters, where the training is, event files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Set, Type

import torch

from trainmaster.core import Context
from trainmaster.core.errors import InvalidExperiment
from trainmaster.pytorch.loader import to_device
from trainmaster.pytorch.reducers import ReducerContext

logger = logging.getLogger("trainmaster.pytorch")


class TrialContext(ReducerContext):
    """What trial classes have in common.

    Attributes:
        distributed: The ranks.
        device: Where this rank computes.
        profiler: Torch's profiler, where `set_profiler` was called.

    Args:
        core: The contexts of the job.
        device: Where this rank computes.
        seed: The trial's; None outside of a job.
        hparams: The trial's hyperparameters.
        config: The experiment's configuration.
        initial_batch: Batches that earlier jobs of this trial have trained.
        tensorboard: Whether metrics are written as event files of TensorBoard.
    """

    def __init__(
        self,
        core: Context,
        device: torch.device,
        *,
        seed: Optional[int] = None,
        hparams: Optional[Dict[str, Any]] = None,
        config: Optional[Dict[str, Any]] = None,
        initial_batch: int = 0,
        tensorboard: bool = True,
    ) -> None:
        super().__init__(core.distributed.allgather)
        self._core = core
        self.distributed = core.distributed
        self.device = device
        self.profiler: Any = None
        self._seed = seed
        self._hparams = hparams
        self._config = config
        self._initial_batch = initial_batch
        self._tensorboard = tensorboard
        self._batch_size = _batch_size(hparams, self.distributed.size)
        self._epoch_len: Optional[int] = None
        self._current_batch_idx: Optional[int] = None
        self._stop_requested = False
        self._writer: Any = None
        self._unmovable: Set[Type[Any]] = set()

    # What the trial is.

    def get_hparams(self) -> Dict[str, Any]:
        """Return the trial's hyperparameters.

        Raises:
            ValueError: `init()` was called without any.
        """
        hparams: Dict[str, Any] = _given(self._hparams, "hparams")
        return hparams

    def get_hparam(self, name: str) -> Any:
        """Return one hyperparameter.

        Raises:
            ValueError: There is none of this name.
        """
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                "there is no hyperparameter %r; the experiment has: %s" % (name, ", ".join(sorted(hparams)) or "none")
            )
        return hparams[name]

    def get_experiment_config(self) -> Dict[str, Any]:
        """Return the experiment's configuration.

        Raises:
            ValueError: `init()` was called without one, outside of a job.
        """
        config: Dict[str, Any] = _given(self._config, "exp_conf")
        return config

    def get_data_config(self) -> Dict[str, Any]:
        """Return the section `data` of the experiment's configuration."""
        section: Dict[str, Any] = self.get_experiment_config().get("data") or {}
        return section

    def get_global_batch_size(self) -> int:
        """Return the hyperparameter `global_batch_size`, as a multiple of the ranks.

        Raises:
            ValueError: The experiment has no such hyperparameter.
        """
        return self.get_per_slot_batch_size() * self.distributed.size

    def get_per_slot_batch_size(self) -> int:
        """Return the batch size of one rank: `global_batch_size` divided by the ranks.

        Raises:
            ValueError: The experiment has no such hyperparameter.
        """
        if self._batch_size is None:
            raise ValueError("the batch size is not known: the experiment needs the hyperparameter global_batch_size")
        return self._batch_size

    def get_trial_seed(self) -> int:
        """Return the trial's seed.

        Raises:
            ValueError: Outside of a job there is none.
        """
        if self._seed is None:
            raise ValueError("outside of a job a trial has no seed")
        return self._seed

    def get_experiment_id(self) -> int:
        """Return the experiment's id; 0 outside of a job."""
        return 0 if self._core.info is None else self._core.info.trial.experiment_id

    def get_trial_id(self) -> int:
        """Return the trial's id; 0 outside of a job."""
        return 0 if self._core.info is None else self._core.info.trial.trial_id

    def get_initial_batch(self) -> int:
        """Return how many batches earlier jobs of this trial have trained."""
        return self._initial_batch

    # Where the training is.

    def current_train_batch(self) -> int:
        """Return the number of the batch that is trained, counted from 0 since the start of the trial."""
        if self._current_batch_idx is None:
            raise RuntimeError("the training has not begun: there is no current batch yet")
        return self._current_batch_idx

    def current_train_epoch(self) -> int:
        """Return the number of the epoch, counted from 0."""
        return self.current_train_batch() // self._length()

    def is_epoch_start(self) -> bool:
        """Check whether the current batch is the first one of its epoch."""
        return self.current_train_batch() % self._length() == 0

    def is_epoch_end(self) -> bool:
        """Check whether the current batch is the last one of its epoch."""
        return self.current_train_batch() % self._length() == self._length() - 1

    def get_stop_requested(self) -> bool:
        """Return whether the trial asked to stop."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask to stop at the next report, with a checkpoint.

        Raises:
            TypeError: `stop_requested` is no bool.
        """
        if not isinstance(stop_requested, bool):
            raise TypeError("set_stop_requested() takes True or False, not %r" % (stop_requested,))
        self._stop_requested = stop_requested

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether metrics are written for TensorBoard."""
        return self._tensorboard

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Choose whether metrics are written for TensorBoard.

        Raises:
            TypeError: The argument is no bool.
        """
        if not isinstance(enable_tensorboard_logging, bool):
            raise TypeError(
                "set_enable_tensorboard_logging() takes True or False, not %r" % (enable_tensorboard_logging,)
            )
        self._tensorboard = enable_tensorboard_logging

    def get_tensorboard_path(self) -> Path:
        """Return the folder for TensorBoard's event files, which are copied to the checkpoint storage."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """Return a `torch.utils.tensorboard.SummaryWriter` into that folder. The image needs `tensorboard`."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.get_tensorboard_path()))
        return self._writer

    def set_profiler(self, *arguments: Any, **options: Any) -> None:
        """Profile the training with `torch.profiler.profile`, whose arguments these are. Its traces are written to
        TensorBoard's folder; the training loop steps it after each batch."""
        options.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path())))
        self.profiler = torch.profiler.profile(*arguments, **options)

    def to_device(self, data: Any) -> Any:
        """Move tensors and arrays to this rank's device."""
        return to_device(data, self.device, self._unmovable)

    def _length(self) -> int:
        if self._epoch_len is None:
            raise RuntimeError("the training data are not loaded: the length of an epoch is not known yet")
        return self._epoch_len


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise ValueError("%s is not known here: pass it to determined.pytorch.init(%s=...)" % (name, name))
    return value


def _batch_size(hparams: Optional[Mapping[str, Any]], ranks: int) -> Optional[int]:
    """Return the batch size of a rank."""
    size = (hparams or {}).get("global_batch_size")
    if not size:
        return None
    if not isinstance(size, int):
        raise InvalidExperiment("the hyperparameter global_batch_size must be a whole number, not %r" % (size,))
    if size < ranks:
        raise InvalidExperiment("global_batch_size (%d) is smaller than the number of ranks (%d)" % (size, ranks))
    if size % ranks:
        logger.warning("global_batch_size is %d, not %d: %d ranks share it equally", size // ranks * ranks, size, ranks)
    return size // ranks
