"""The loop that trains a `PyTorchTrial`: batches, reports, validations, checkpoints, in Determined's order."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from trainmaster.core import EarlyExitReason
from trainmaster.core.errors import CoreError, InvalidExperiment, InvalidHP, MasterAway
from trainmaster.pytorch import event_files
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.checkpoints import TrialCheckpoints
from trainmaster.pytorch.context import PyTorchTrialContext
from trainmaster.pytorch.evaluation import Evaluation
from trainmaster.pytorch.loader import DataLoader, TrainingOrder
from trainmaster.pytorch.metrics import Metrics, as_numpy, mean_over_batches, mean_over_ranks
from trainmaster.pytorch.trial import PyTorchTrial, overrides
from trainmaster.pytorch.units import Batch, Epoch, TrainUnit

logger = logging.getLogger("trainmaster.pytorch")


class FitPlan:
    """How long a trial trains, and what is due when. The arguments are those of `Trainer.fit`."""

    def __init__(
        self,
        *,
        max_length: TrainUnit,
        checkpoint_period: TrainUnit,
        validation_period: TrainUnit,
        reporting_period: TrainUnit,
        checkpoint_policy: str,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
        searcher_metric: Optional[str] = None,
        smaller_is_better: bool = True,
    ) -> None:
        self.max_length = max_length
        self.checkpoint_period = checkpoint_period
        self.validation_period = validation_period
        self.reporting_period = reporting_period
        self.checkpoint_policy = checkpoint_policy
        self.step_zero_validation = step_zero_validation
        self.test_mode = test_mode
        self.profiling_enabled = profiling_enabled
        self.searcher_metric = searcher_metric
        self.smaller_is_better = smaller_is_better


class _Leave(Exception):
    """The training ends before its time."""


class TrainingLoop:
    """Trains one trial, from a checkpoint or from its beginning, to the end of the plan or until it must leave.

    Args:
        trial: The user's.
        context: The one that the trial was made with.
        plan: What is due.
        latest_checkpoint: The uuid of the checkpoint to continue from.
        is_trainer: Whether the user's script made the trial, not its name as the entrypoint.

    Raises:
        InvalidExperiment: The trial wrapped no model or no optimizer, or evaluates in no way or in two.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        plan: FitPlan,
        latest_checkpoint: Optional[str],
        is_trainer: bool = True,
    ) -> None:
        self._trial = trial
        self._name = type(trial).__name__
        self._context = context
        self._core = context._core
        self._ranks = context.distributed
        self._is_chief = self._ranks.rank == 0
        self._plan = plan
        self._latest = latest_checkpoint
        for what, wrapped in (("model", context.models), ("optimizer", context.optimizers)):
            if not wrapped:
                raise InvalidExperiment(
                    "%s has no %s: its __init__() must call context.wrap_%s()" % (self._name, what, what)
                )
        self._callbacks: Dict[str, PyTorchCallback] = trial.build_callbacks()
        self._evaluation = Evaluation(trial, context, self._callbacks)
        self._checkpoints = TrialCheckpoints(trial, context, self._callbacks, is_trainer)
        self._progress = self._checkpoints.find(latest_checkpoint)
        self._order: Optional[TrainingOrder] = None
        self._batches: Iterator[Any] = iter(())

    def run(self) -> None:
        """Train. All ranks call."""
        progress = self._progress
        with contextlib.ExitStack() as stack:
            for callback in self._callbacks.values():
                callback.on_trial_startup(progress.trained, self._latest)
                stack.callback(callback.on_trial_shutdown)
            training, validation = self._load_data()
            # Before the random numbers are set, which making a loader's iterator draws from.
            self._batches = self._endless(training, iter(training))
            stack.callback(self._batches.close)  # type: ignore[attr-defined]
            self._checkpoints.restore()
            if progress.trained and self._last_validation() == progress.trained:
                progress.validated_at = progress.trained  # after this very checkpoint was saved
            self._context._backend.begin(self._context.models, self._context.optimizers)
            for callback in self._callbacks.values():
                callback.on_training_start()
            if self._plan.profiling_enabled:
                self._core.profiler.on()
            try:
                self._train(validation)
            except _Leave:
                self._save_once()
            except InvalidHP:
                self._save_once()
                self._core.train.report_early_exit(EarlyExitReason.INVALID_HP)
                raise

    # The data.

    def _load_data(self) -> Tuple[Any, Any]:
        size, rank = self._ranks.size, self._ranks.rank
        made = self._trial.build_training_data_loader()
        training = self._checked(made, "build_training_data_loader")
        if isinstance(made, DataLoader):
            length = max(1, len(made) // size + int(len(made) % size > rank))
            known = self._checkpoints.order
            begun = max(known) + 1 if known else math.ceil(self._progress.trained / length)
            self._order = TrainingOrder(made.batch_sampler, self._ranks, known, begun)
            seed = self._context._seed or 0
            training = made.for_training(self._order, self._progress.trained, size, rank, seed)
            length = len(made) // size + int(len(made) % size > 0)  # of the chief, which has the most
        else:
            length = self._length_of(training)
        if length < 1:
            raise InvalidExperiment("%s.build_training_data_loader() returned a loader without batches" % self._name)
        self._context._epoch_len = length
        if not self._evaluation.by_batch:
            size, rank = 1, 0
        made = self._trial.build_validation_data_loader()
        validation = self._checked(made, "build_validation_data_loader")
        if isinstance(made, DataLoader):
            validation = made.get_data_loader(repeat=False, skip=0, num_replicas=size, rank=rank)
        return training, validation

    def _checked(self, loader: Any, method: str) -> Any:
        if isinstance(loader, DataLoader) or self._context.experimental._any_loader:
            return loader
        raise InvalidExperiment(
            "%s.%s() returned a %s: return a determined.pytorch.DataLoader, which takes the same arguments and "
            "continues where a trial stopped, or do that yourself, and call "
            "context.experimental.disable_dataset_reproducibility_checks() in __init__()"
            % (self._name, method, type(loader).__name__)
        )

    def _length_of(self, loader: Any) -> int:
        try:
            length = len(loader)
        except TypeError:
            length = sys.maxsize
        lengths = self._ranks.allgather(length)
        if len(set(lengths)) > 1:
            raise InvalidExperiment(
                "%s.build_training_data_loader() returned loaders of different lengths: %s. Ranks train the same "
                "number of batches" % (self._name, ", ".join("rank %d %d" % pair for pair in enumerate(lengths)))
            )
        return length

    def _endless(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            empty = True
            for batch in batches:
                empty = False
                yield batch
            if empty:
                raise InvalidExperiment(
                    "%s.build_training_data_loader() returned a loader without batches" % self._name
                )
            batches = iter(loader)

    # The training.

    def _train(self, validation: Any) -> None:
        plan = self._plan
        if plan.step_zero_validation and self._progress.trained == 0 and self._progress.validated_at is None:
            self._validate(validation)
        length = Batch(1) if plan.test_mode else plan.max_length
        due = [
            (length, self._report_progress),
            (plan.validation_period, lambda: self._validate_once(validation)),
            (plan.checkpoint_period, self._save_once),
            (plan.reporting_period, self._report_progress),
        ]
        while self._is_before(length):
            reached = self._train_stretch([unit for unit, _ in due])
            for number, (_, act) in enumerate(due):
                if reached[number]:
                    act()
                    event_files.upload(self._context)
                    self._leave_if_asked()
        self._validate_once(validation)
        self._save_once()

    def _is_before(self, length: TrainUnit) -> bool:
        done = self._progress.trained if isinstance(length, Batch) else self._progress.epochs
        return done < int(length.value)  # type: ignore[arg-type]

    def _train_stretch(self, units: List[TrainUnit]) -> List[bool]:
        """Train until one of these units is due; return which are."""
        if self._is_chief:
            self._core.train.set_status("training")
        for model in self._context.models:
            model.train()
        self._context.reset_reducers()
        trained: List[Metrics] = []
        length = self._context._length()
        while True:
            number = self._progress.trained
            epoch, in_epoch = divmod(number, length)
            batch = next(self._batches)
            self._context._current_batch_idx = number
            if in_epoch == 0:
                self._begin_epoch(epoch)
            trained.append(self._train_batch(batch, epoch, number))
            self._progress.trained += 1
            ends = in_epoch == length - 1
            if ends:
                self._progress.epochs += 1
                for callback in self._callbacks.values():
                    callback.on_training_epoch_end(epoch)
            reached = [
                ends and unit.should_stop(epoch + 1) if isinstance(unit, Epoch) else unit.should_stop(number + 1)
                for unit in units
            ]
            if any(reached):
                self._report_training(trained)
                return reached

    def _begin_epoch(self, epoch: int) -> None:
        for callback in self._callbacks.values():
            # Trials of Determined's releases up to 0.17.8 have this method without the epoch.
            if inspect.signature(callback.on_training_epoch_start).parameters:
                callback.on_training_epoch_start(epoch)
            else:
                callback.on_training_epoch_start()  # type: ignore[call-arg]

    def _train_batch(self, batch: Any, epoch: int, number: int) -> Metrics:
        context = self._context
        if context.experimental._auto_to_device:
            batch = context.to_device(batch)
        with context.profiler or contextlib.nullcontext():
            metrics = self._trial.train_batch(batch=batch, epoch_idx=epoch, batch_idx=number)
            if context.profiler is not None:
                context.profiler.step()
        if isinstance(metrics, torch.Tensor):
            metrics = {"loss": metrics}
        if not isinstance(metrics, dict):
            raise TypeError(
                "%s.train_batch() must return the loss or a dict of metrics, not a %s"
                % (self._name, type(metrics).__name__)
            )
        if context._steps():
            if context._scaler is not None and context._auto_dtype is not None:
                context._scaler.update()  # once for all optimizers
            for scheduler in context.lr_schedulers:
                scheduler.step_after(number, context._aggregation_frequency, context._length())
        return as_numpy(metrics)

    # Reports.

    def _report_training(self, trained: List[Metrics]) -> None:
        batches = mean_over_ranks(self._ranks, trained)
        average = mean_over_batches(batches)
        average.update(as_numpy(self._context.reduce_metrics(for_training=True)))
        if self._is_chief:
            event_files.write(self._context, "train", self._progress.trained, average, batches)
            average.setdefault("batches", self._progress.trained)
            average.setdefault("epochs", self._progress.epochs)
            self._core.train.report_training_metrics(self._progress.trained, average, batches)
        if any(overrides(each, "on_training_workload_end", PyTorchCallback) for each in self._callbacks.values()):
            average, batches = self._ranks.broadcast((average, batches) if self._is_chief else None)
            for callback in self._callbacks.values():
                callback.on_training_workload_end(avg_metrics=average, batch_metrics=batches)

    def _report_progress(self) -> None:
        whole = int(self._plan.max_length.value)  # type: ignore[arg-type]
        done = self._progress.trained if isinstance(self._plan.max_length, Batch) else self._progress.epochs
        self._core.train.report_progress(min(1.0, done / whole))

    def _leave_if_asked(self) -> None:
        if self._core.preempt.should_preempt() or any(self._ranks.allgather(self._context.get_stop_requested())):
            raise _Leave()

    def _validate_once(self, loader: Any) -> None:
        if self._progress.validated_at != self._progress.trained:
            self._validate(loader)

    def _validate(self, loader: Any) -> None:
        if self._is_chief:
            self._core.train.set_status("validating")
        metrics = self._evaluation.run(loader, self._plan.test_mode)
        self._progress.validated_at = self._progress.trained
        wanted = self._report_validation(metrics) if self._is_chief else None
        if self._ranks.broadcast(wanted):
            self._save_once()

    def _report_validation(self, metrics: Metrics) -> bool:
        """Report; return whether the policy asks for a checkpoint."""
        event_files.write(self._context, "val", self._progress.trained, metrics, [])
        policy = self._plan.checkpoint_policy
        best = self._best_so_far() if policy == "best" else None
        reported = {"batches": self._progress.trained, "epochs": self._progress.epochs, **metrics}
        self._core.train.report_validation_metrics(self._progress.trained, reported)
        if policy != "best":
            return policy == "all"
        value = self._evaluation.searcher_metric(self._plan.searcher_metric, metrics)
        return best is None or (value < best if self._plan.smaller_is_better else value > best)

    def _best_so_far(self) -> Optional[float]:
        try:
            return self._core.train.get_experiment_best_validation()
        except MasterAway as error:
            logger.warning("a checkpoint is saved in any case: %s", error)
        except CoreError as error:
            logger.warning("the best validation so far is not known: %s", error)
        return None

    def _last_validation(self) -> Optional[int]:
        """Return after how many batches this trial reported its last validation."""
        if not self._is_chief:
            return self._ranks.broadcast(None)  # type: ignore[no-any-return]
        try:
            found = self._core.train.get_last_validation()
        except CoreError as error:
            logger.warning("the last validation of this trial is not known: %s", error)
            found = None
        self._ranks.broadcast(found)
        return found

    def _save_once(self) -> None:
        if self._progress.saved_at != self._progress.trained:
            self._checkpoints.save(self._progress, {} if self._order is None else self._order.drawn)
