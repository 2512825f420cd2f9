"""`TrainmasterCallback`: turns the events of Lightning's Trainer into reports, checkpoints and the way out."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NoReturn, Optional, Tuple

from trainmaster.core import Context, DistributedContext
from trainmaster.core.session import Session
from trainmaster.lightning.logger import TrainmasterLogger
from trainmaster.lightning.package import FRAMEWORK, LOWEST, VERSION, pl
from trainmaster.pytorch.data import Position, make_repeatable
from trainmaster.pytorch.random_numbers import all_states, set_all_states

Mark = Tuple[int, int]

_FILE = "checkpoint.ckpt"
_KEPT = "kept"  # key of a checkpoint's metadata: where the files are stored that ModelCheckpoint keeps


def latest_checkpoint(context: Optional[Context] = None) -> Optional[str]:
    """Find the checkpoint from which this trial continues, for `trainer.fit(..., ckpt_path=...)`.

    Args:
        context: The script's own context, where it has one.

    Returns:
        Its path, which must not be written to; None at the start of a trial and outside of a job.

    Raises:
        CheckpointError: The checkpoint is gone, or another framework wrote it.
    """
    folder = Session(FRAMEWORK, VERSION, context, LOWEST).checkpoint()
    return None if folder is None else str(_file_in(folder))


class TrainmasterCallback(pl.Callback):  # type: ignore[misc]
    """Reports what the module logs, stores the checkpoints that Lightning writes, and leaves when the job must.

    Metrics keep their names; those of a validation come with `batches` and `epochs` for searches that count these.
    Every file that a `ModelCheckpoint` writes is stored. Asked to leave, the trainer writes a checkpoint after the
    next optimizer step, and the process ends with status 0: what follows `fit()` in the script runs only when the
    training is complete. A training that continues has the same batches and random numbers to come, whatever its
    loaders, as long as their datasets have indices. Outside of a job the callback does nothing.

    Args:
        context: The script's own context, where it has one. Default: one that this callback opens and closes.
    """

    def __init__(self, context: Optional[Context] = None) -> None:
        self._session = Session(FRAMEWORK, VERSION, context, LOWEST)
        self._position = Position(self._session.seed or 0)
        self._random: Optional[Dict[str, Any]] = None  # to be set before the first step of a training that continues
        self._step = 0
        self._stored: Dict[str, str] = {}  # files of ModelCheckpoint: the path, and the uuid
        self._written: Dict[int, Tuple[Any, Any]] = {}  # each ModelCheckpoint's last step and file
        self._marks: Dict[str, Optional[Mark]] = {}  # of the files that are stored, as the chief sees them
        self._kept: Mapping[str, Any] = {}  # states of ModelCheckpoint in the checkpoint that was loaded

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Connect, and see to it that the loaders of the training are repeatable."""
        if stage != "fit" or not self._session.active:
            return
        self._session.open(_ranks(trainer))
        self._position.rank = trainer.global_rank
        # Last, after ModelCheckpoint, whose state of a step must be complete when the step is saved.
        trainer.callbacks = [each for each in trainer.callbacks if each is not self] + [self]
        trainer.loggers = [*trainer.loggers, TrainmasterLogger.of(self._session, trainer)]
        _never_requeue(trainer)
        loop = trainer.fit_loop
        load = loop._load_combined_loader_states

        @functools.wraps(load)
        def repeatable() -> None:
            load()
            for loader in loop._combined_loader.flattened:
                make_repeatable(loader, self._position)

        loop._load_combined_loader_states = repeatable  # called with the loaders as they are, before their iterators

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Bring back what ModelCheckpoint kept before: its folder may have been another attempt's."""
        self._step = trainer.global_step
        latest = self._session.latest
        if not self._session.active or trainer.ckpt_path is None or latest is None:
            return
        places = {
            path: str(_file_in(folder))
            for path, uuid in (self._session.metadata_of(latest).get(_KEPT) or {}).items()
            for folder in [self._session.folder_of(uuid or latest)]
            if folder is not None
        }
        for callback in trainer.checkpoint_callbacks:
            state = self._kept.get(callback.state_key)
            if state is not None:
                _restore(callback, state, places)
        for path, uuid in (self._session.metadata_of(latest).get(_KEPT) or {}).items():
            if path in places:
                self._stored[places[path]] = uuid or latest
        self._marks.update(self._marked(list(self._stored)))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._position.epoch = trainer.current_epoch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Continue with the random numbers that were to come when the checkpoint was written."""
        if self._random is not None:
            states, self._random = self._random, None
            set_all_states(states)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Leave if asked to, after an optimizer step: never within an accumulation of gradients."""
        if not self._session.active:
            return
        self._store_new_files(trainer)
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        self._report_progress(trainer, batch_idx)
        loop = trainer.fit_loop.epoch_loop
        # What is due after this step must not be lost: a validation, the end of the epoch. The next step will do.
        due = loop.batch_progress.is_last_batch or loop._should_check_val_fx(trainer.fit_loop._data_fetcher)
        if not due and not _complete(trainer) and self._session.asked_to_leave():
            self._leave(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Check the names of the metrics. Leave if asked to, in the middle of an epoch."""
        if not self._session.active or trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        self._store_new_files(trainer)
        self._session.check_searcher_metric()
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch and self._session.asked_to_leave():
            self._leave(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave if asked to, where an epoch is one batch, after which something is always due."""
        if not self._session.active:
            return
        self._store_new_files(trainer)
        last = trainer.current_epoch + 1 == trainer.max_epochs
        if trainer.num_training_batches == 1 and not last and not _complete(trainer) and self._session.asked_to_leave():
            self._leave(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Store what ModelCheckpoint wrote last."""
        if self._session.active:
            self._store_new_files(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._session.close()

    def state_dict(self) -> Dict[str, Any]:
        """Return what Lightning's checkpoints do not hold: the random numbers of all ranks."""
        return {"random": self._session.gathered(all_states())} if self._session.active else {}

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Add the position in the data."""
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if state:
            done = trainer.fit_loop.epoch_loop.batch_progress
            ended = done.is_last_batch
            state["epoch"] = trainer.current_epoch + ended
            state["batches"] = 0 if ended else done.current.ready

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Take the position in the data, and the random numbers, from a checkpoint."""
        self._kept = checkpoint.get("callbacks", {})
        state = self._kept.get(self.state_key)
        if not state or not self._session.active:
            return
        self._position.epoch, self._position.skip = state["epoch"], state["batches"]
        if len(state["random"]) == trainer.world_size:
            self._random = state["random"][trainer.global_rank]

    def _report_progress(self, trainer: Any, batch_idx: int) -> None:
        if trainer.max_steps > 0:
            self._session.report_progress(trainer.global_step, trainer.max_steps)
        elif trainer.max_epochs is not None and trainer.max_epochs > 0:
            done = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
            self._session.report_progress(done, trainer.max_epochs)

    def _store_new_files(self, trainer: Any) -> None:
        """Store the files that each ModelCheckpoint has written since the last call."""
        for number, callback in enumerate(trainer.checkpoint_callbacks):
            written = (
                getattr(callback, "_last_global_step_saved", None),
                getattr(callback, "_last_checkpoint_saved", None),
            )
            if not written[1] or self._written.get(number) == written:
                continue
            self._written[number] = written
            for path in self._new_files(callback):
                kept = {**self._stored_of(trainer), path: ""}
                uuid = self._session.save(Path(path), trainer.global_step, {_KEPT: kept})
                if uuid is not None:
                    self._stored[path] = uuid

    def _new_files(self, callback: Any) -> List[str]:
        last = getattr(callback, "last_model_path", "")
        marks = self._marked([*_paths(callback), *([last] if last else [])])
        new = [path for path, mark in marks.items() if mark is not None and self._marks.get(path) != mark]
        self._marks.update(marks)
        # `last.ckpt` is a copy of what was written beside it.
        return [path for path in new if path != last] or new

    def _marked(self, paths: Iterable[str]) -> Dict[str, Optional[Mark]]:
        """Return how the chief sees these files: other nodes may have none, or older ones. All ranks call."""
        marks: Dict[str, Optional[Mark]] = self._session.gathered({path: _mark(path) for path in paths})[0]
        return marks

    def _stored_of(self, trainer: Any) -> Dict[str, str]:
        """Return those files that ModelCheckpoint keeps, with their uuids."""
        kept = {path for each in trainer.checkpoint_callbacks for path in _paths(each)}
        return {path: uuid for path, uuid in self._stored.items() if path in kept}

    def _leave(self, trainer: Any) -> NoReturn:
        with self._session.store(trainer.global_step, {_KEPT: self._stored_of(trainer)}) as folder:
            trainer.save_checkpoint(str(folder / _FILE))
        loggers, trainer.loggers = trainer.loggers, []  # Lightning would call this training failed
        for logger in loggers:
            logger.finalize("success")
        self._session.leave()


def _ranks(trainer: Any) -> Optional[DistributedContext]:
    """Return the ranks of a trainer that started its own processes; None where a launcher did."""
    if trainer.world_size == 1 or "LOCAL_WORLD_SIZE" in os.environ or "LOCAL_SIZE" in os.environ:
        return None
    return DistributedContext(
        rank=trainer.global_rank,
        size=trainer.world_size,
        local_rank=trainer.local_rank,
        local_size=trainer.num_devices,
        cross_rank=trainer.node_rank,
        cross_size=trainer.num_nodes,
    )


def _never_requeue(trainer: Any) -> None:
    """Switch off Lightning's own way of starting a job again: the master does that."""
    environment = trainer._accelerator_connector.cluster_environment
    if getattr(environment, "auto_requeue", False):
        environment.auto_requeue = False


def _complete(trainer: Any) -> bool:
    """Whether the training ends at this step: there is nothing to leave for later."""
    if 0 < trainer.max_steps <= trainer.global_step:
        return True
    last_epoch = trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
    return bool(last_epoch and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)


def _mark(path: str) -> Optional[Mark]:
    """Return what tells a file that was written again; None for one that is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _paths(callback: Any) -> Dict[str, Any]:
    """Return the files that a ModelCheckpoint keeps, with their scores."""
    kept: Dict[str, Any] = dict(getattr(callback, "best_k_models", None) or {})
    best = getattr(callback, "best_model_path", "")
    if best:
        kept.setdefault(best, getattr(callback, "best_model_score", None))
    return kept


def _restore(callback: Any, state: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Give a ModelCheckpoint its best files and scores again, at their places in the storage. It never removes files
    outside of its own folder. Without this a worse model would replace the best one of the earlier attempts."""
    best = state.get("best_model_path", "")
    if best not in places:
        callback.best_model_path = ""
        return
    callback.best_model_path = places[best]
    callback.best_model_score = state.get("best_model_score")
    callback.current_score = state.get("current_score")
    callback.best_k_models = {
        places[path]: score for path, score in (state.get("best_k_models") or {}).items() if path in places
    }
    kth = state.get("kth_best_model_path", "")
    if kth in places:
        callback.kth_best_model_path = places[kth]
        callback.kth_value = state.get("kth_value")


def _file_in(folder: Path) -> Path:
    """Return the one checkpoint in a folder of the storage; the folder itself for one of many files."""
    files = sorted(folder.glob("*.ckpt"))
    return files[0] if len(files) == 1 else folder
