"""`TrainmasterTracker`: an Accelerate tracker that also restores, saves and leaves."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional

import accelerate
from accelerate.tracking import GeneralTracker

from trainmaster.core import Context
from trainmaster.core.session import Session
from trainmaster.pytorch.data import Position, make_repeatable
from trainmaster.pytorch.random_numbers import all_states, set_all_states

_VALIDATION = ("eval", "val", "test")  # how names of validation metrics begin


class TrainmasterTracker(GeneralTracker):  # type: ignore[misc]
    """Reports what `accelerator.log` logs, for `Accelerator(log_with=tracker)`.

    Metrics keep their names: those that begin with `eval`, `val` or `test` are validation, the others training. With
    its two loops, which stand for those of the script, the training also continues where it was, and leaves after the
    next optimizer step when it is asked to:

        for epoch in tracker.epochs(accelerator, 10):
            for inputs, targets in tracker.batches(loader):
                ...

    All ranks create one. Outside of a job nothing is reported, and the loops are those of the script.

    Args:
        context: The script's own context, where it has one. Default: one that the tracker opens and closes.
    """

    name = "trainmaster"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, context: Optional[Context] = None) -> None:
        super().__init__()
        self._session = Session("accelerate", accelerate.__version__, context, (1,))
        self._session.open()  # here, for Accelerate lets only the main process log
        self._position = Position(self._session.seed or 0)
        self._random: Optional[Dict[str, Any]] = None  # to be set before the first step of a training that continues
        self._accelerator: Any = None
        self._epochs = 0  # in all
        self._epoch = 0
        self._batch = 0
        self._steps = 0
        self._in_batch = False

    @property
    def tracker(self) -> Session:
        return self._session

    @property
    def steps(self) -> int:
        """Optimizer steps since the start of the trial; in a batch, with its own."""
        return self._steps + (self._in_batch and self._accelerator.sync_gradients)

    def log(self, values: Mapping[str, Any], step: Optional[int] = None, **more: Any) -> None:
        """Report metrics.

        Args:
            values: Name and number.
            step: Optimizer steps since the start of the trial. Default: `steps`.
            more: What Accelerate passes to other trackers; without effect.

        Raises:
            ValueError: The search compares trials by a metric that the validations do not have.
        """
        at = self.steps if step is None else step
        validation = {name: value for name, value in values.items() if name.startswith(_VALIDATION)}
        self._session.report_training(at, {name: value for name, value in values.items() if name not in validation})
        if validation:
            self._session.report_validation(at, validation)
            self._session.check_searcher_metric()

    def epochs(self, accelerator: Any, number: int) -> Iterator[int]:
        """Count the epochs, after `accelerator.prepare`. A trial that was interrupted continues in its epoch. All ranks
        call.

        Args:
            accelerator: The script's.
            number: Epochs in all.

        Raises:
            CheckpointError: The checkpoint is gone, or another framework wrote it.
        """
        self._accelerator, self._epochs = accelerator, number
        self._restore()
        while self._epoch < number:
            yield self._epoch
            self._epoch, self._batch = self._epoch + 1, 0

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of this epoch that are to come, and leave between two of them if asked to.

        Raises:
            RuntimeError: Not within `epochs`.
            SystemExit: The job was asked to leave, and the training is saved.
        """
        if self._accelerator is None:
            raise RuntimeError("tracker.batches() works within `for epoch in tracker.epochs(accelerator, number):`")
        count = len(loader) if hasattr(loader, "__len__") else 0
        if self._session.active and not make_repeatable(loader, self._position) and self._batch:
            loader = accelerate.skip_first_batches(loader, self._batch)
        self._position.epoch, self._position.skip = self._epoch, self._batch
        for batch in loader:
            if self._random is not None:
                states, self._random = self._random, None
                set_all_states(states)
            self._in_batch = True
            yield batch
            self._in_batch = False
            self._batch += 1
            if self._accelerator.sync_gradients:
                self._steps += 1
                # After the last batch, what the epoch ends with must not be lost.
                if self._batch != count and self._session.asked_to_leave():
                    self.save()
                    self._session.leave()
            if count:
                self._session.report_progress(self._epoch + self._batch / count, self._epochs)

    def save(self) -> None:
        """Store a checkpoint of Accelerate's (`accelerator.save_state`), between two batches or in one after its
        optimizer step. All ranks call."""
        if not self._session.active:
            return
        position: Dict[str, Any] = {"epoch": self._epoch, "batch": self._batch + self._in_batch}
        with self._session.store(self.steps, position) as folder:
            self._accelerator.save_state(str(folder))

    def finish(self) -> None:
        """Close the connections. `accelerator.end_training` calls it."""
        self._session.close()

    def _restore(self) -> None:
        folder = self._session.checkpoint()
        self._position.rank = self._accelerator.process_index
        if folder is None or self._session.latest is None:
            return
        self._accelerator.load_state(str(folder))
        self._random = all_states()  # making the first batch draws from them
        position = self._session.metadata_of(self._session.latest)
        self._steps = position["steps_completed"]
        self._epoch, self._batch = position["epoch"], position["batch"]
