"""The loop that trains a trial class: batches, reports, validations, checkpoints, in Determined's order."""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from trainmaster.core import EarlyExitReason
from trainmaster.core.errors import CoreError, InvalidExperiment, InvalidHP, MasterAway
from trainmaster.pytorch import event_files
from trainmaster.pytorch.callback import PyTorchCallback
from trainmaster.pytorch.checkpoints import TrialCheckpoints
from trainmaster.pytorch.evaluation import Evaluation
from trainmaster.pytorch.loader import DataLoader, TrainingOrder
from trainmaster.pytorch.metrics import Metrics, as_numpy, mean_over_batches, mean_over_ranks
from trainmaster.pytorch.trial import overrides
from trainmaster.pytorch.trial_context import TrialContext
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
        is_search: bool = False,
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
        self.is_search = is_search  # whether trials are compared while they train


class _Leave(Exception):
    """The training ends before its time."""


class FitLoop:
    """Trains one trial, from a checkpoint or from its beginning, to the end of the plan or until it must leave. The
    subclass knows the kind of trial.

    Args:
        trial: The user's.
        context: The one that the trial was made with.
        plan: What is due.
        latest_checkpoint: The uuid of the checkpoint to continue from.
        evaluation: Validates the trial.
        checkpoints: Saves and restores it.

    Raises:
        CheckpointError: The checkpoint is gone, or none of a trial.
    """

    def __init__(
        self,
        trial: Any,
        context: TrialContext,
        plan: FitPlan,
        latest_checkpoint: Optional[str],
        callbacks: Dict[str, PyTorchCallback],
        evaluation: Evaluation,
        checkpoints: TrialCheckpoints,
    ) -> None:
        self._trial = trial
        self._name = type(trial).__name__
        self._context = context
        self._core = context._core
        self._ranks = context.distributed
        self._is_chief = self._ranks.rank == 0
        self._plan = plan
        self._latest = latest_checkpoint
        self._callbacks = callbacks
        self._evaluation = evaluation
        self._checkpoints = checkpoints
        self._progress = checkpoints.find(latest_checkpoint)
        self._order: Optional[TrainingOrder] = None
        self._batches: Any = iter(())

    # What the subclass knows.

    def _load_data(self) -> Tuple[Any, Any]:
        """Return the loaders of training and validation, None where this rank has no data; set an epoch's length."""
        raise NotImplementedError

    def _models(self) -> List[Any]:
        raise NotImplementedError

    def _begin(self) -> None:
        """Give all ranks the chief's state."""

    def _fetch(self) -> Any:
        """Return the next batch, or what the trial fetches it from."""
        raise NotImplementedError

    def _train_batch(self, fetched: Any, epoch: int, number: int) -> List[Metrics]:
        """Train one batch; return the metrics of each of its parts."""
        raise NotImplementedError

    # The run.

    def run(self) -> None:
        """Train. All ranks call."""
        progress = self._progress
        with contextlib.ExitStack() as stack:
            for callback in self._callbacks.values():
                callback.on_trial_startup(progress.trained, self._latest)
                stack.callback(callback.on_trial_shutdown)
            training, validation = self._load_data()
            # Before the random numbers are set, which making a loader's iterator draws from.
            if training is not None:
                self._batches = self._endless(training, iter(training))
                stack.callback(self._batches.close)
            self._checkpoints.restore()
            if progress.trained and self._last_validation() == progress.trained:
                progress.validated_at = progress.trained  # after this very checkpoint was saved
            self._begin()
            for callback in self._callbacks.values():
                callback.on_training_start()
            if self._plan.profiling_enabled:
                self._core.profiler.on()
            try:
                self._train(validation)
            except _Leave:
                self._save_once()
                self._checkpoints.finish()
            except InvalidHP:
                self._save_once()
                self._core.train.report_early_exit(EarlyExitReason.INVALID_HP)
                raise

    def _checked(self, loader: Any, method: str, any_loader: bool) -> Any:
        if isinstance(loader, DataLoader) or any_loader:
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
        self._checkpoints.finish()

    def _is_before(self, length: TrainUnit) -> bool:
        done = self._progress.trained if isinstance(length, Batch) else self._progress.epochs
        return done < int(length.value)  # type: ignore[arg-type]

    def _train_stretch(self, units: List[TrainUnit]) -> List[bool]:
        """Train until one of these units is due; return which are."""
        if self._is_chief:
            self._core.train.set_status("training")
        for model in self._models():
            model.train()
        self._context.reset_reducers()
        trained: List[Metrics] = []
        length = self._context._length()
        while True:
            number = self._progress.trained
            epoch, in_epoch = divmod(number, length)
            fetched = self._fetch()
            self._context._current_batch_idx = number
            if in_epoch == 0:
                self._begin_epoch(epoch)
            trained.extend(self._train_batch(fetched, epoch, number))
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

    def _metrics_of(self, returned: Any) -> Metrics:
        """Check what `train_batch` has returned."""
        metrics = {"loss": returned} if isinstance(returned, torch.Tensor) else returned
        if not isinstance(metrics, dict):
            raise TypeError(
                "%s.train_batch() must return the loss or a dict of metrics, not a %s"
                % (self._name, type(metrics).__name__)
            )
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
        if policy != "best" and not self._plan.is_search:
            return policy == "all"
        value = self._evaluation.searcher_metric(self._plan.searcher_metric, metrics)
        if policy != "best":
            return policy == "all"
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
