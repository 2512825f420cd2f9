"""`TrainmasterCallback`: turns the events of Hugging Face's Trainer into reports, checkpoints and the way out."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import transformers
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainmaster.core import Context
from trainmaster.core.session import Session
from trainmaster.pytorch.data import Position, make_repeatable

_BEST = "best_checkpoint"  # key of a checkpoint's metadata: the uuid of the one with Trainer's best model
_STATE = "trainer_state.json"
_LOWEST = (4, 52)
_SUMMARY = "train_runtime"  # a metric that Trainer logs at the end of a training only


def latest_checkpoint(context: Optional[Context] = None) -> Optional[str]:
    """Find the checkpoint from which this trial continues, for `trainer.train(resume_from_checkpoint=...)`.

    Args:
        context: The script's own context, where it has one.

    Returns:
        A folder with its files; None at the start of a trial and outside of a job.

    Raises:
        CheckpointError: The checkpoint is gone, or another framework wrote it.
    """
    session = _session(context)
    folder = session.checkpoint()
    if folder is None or session.latest is None or session.run_dir is None:
        return None
    best = session.metadata_of(session.latest).get(_BEST)
    return str(_with_best(folder, session.run_dir / "resume", None if best is None else session.folder_of(best)))


class TrainmasterCallback(TrainerCallback):  # type: ignore[misc]
    """Reports what Trainer logs, stores the checkpoints that it writes, and leaves when the job must.

    Metrics keep Trainer's names: `loss`, `grad_norm`, `learning_rate` as training, `eval_loss` and all that
    `compute_metrics` returns as validation, with `batches` and `epochs` beside them for searches that count these. What
    Trainer sums up at its end is the group `summary`. Asked to leave, Trainer writes a checkpoint after the next
    optimizer step, whatever its `save_strategy`, and the process ends with status 0: what follows `train()` in the
    script runs only when the training is complete. Outside of a job the callback does nothing.

    Args:
        context: The script's own context, where it has one. Default: one that this callback opens and closes.
    """

    def __init__(self, context: Optional[Context] = None) -> None:
        self._session = _session(context)
        self._evaluated_at: Optional[int] = None
        self._position = Position(self._session.seed or 0)
        self._uuids: Dict[int, str] = {}  # checkpoints of this trial: the step, and the uuid

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **more: Any,
    ) -> None:
        """Connect, and see to it that the training data are repeatable."""
        if not self._session.active:
            return
        self._session.open()
        self._position.rank = args.process_index
        make_repeatable(train_dataloader, self._position)
        latest = self._session.latest
        if state.global_step and latest is not None:
            self._uuids[state.global_step] = latest
            best = self._session.metadata_of(latest).get(_BEST)
            if best is not None and state.best_global_step is not None:
                self._uuids[state.best_global_step] = best

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        """Set the epoch of the data. Trainer itself passes over the batches that this epoch has had."""
        self._position.epoch = int(state.epoch or 0)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Optional[Mapping[str, Any]] = None,
        **more: Any,
    ) -> None:
        """Report metrics of training. Those of an evaluation arrive in `on_evaluate`."""
        if not logs or any(name.startswith("eval_") for name in logs):
            return
        group = "summary" if _SUMMARY in logs else "training"
        self._session.report_training(state.global_step, _numbers(logs), group)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Optional[Mapping[str, Any]] = None,
        **more: Any,
    ) -> None:
        """Report metrics of validation. Leave if the searcher has given up this trial because of them."""
        if not self._session.active or not metrics:
            return
        counted = {"batches": state.global_step, "epochs": state.epoch or 0.0}
        self._session.report_validation(state.global_step, {**_numbers(metrics), **counted})
        self._evaluated_at = state.global_step
        self._leave_if_asked(state, control)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Check the names of what the last evaluation reported: it may have been over several data sets."""
        if self._evaluated_at is not None:
            self._evaluated_at = None
            self._session.check_searcher_metric()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Leave if asked to. Comes after optimizer steps only, so never within an accumulation of gradients."""
        self._session.report_progress(state.global_step, state.max_steps)
        self._leave_if_asked(state, control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Let nothing be due where a training leaves in the middle of an epoch, which Trainer takes for its end."""
        if self._session.leaving and state.epoch != round(state.epoch or 0):
            control.should_log = control.should_evaluate = control.should_save = False
            state.best_model_checkpoint = None  # it is saved, and need not be loaded for nothing

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Store the checkpoint that Trainer has written."""
        if not self._session.active:
            return
        step = state.global_step
        best = None if state.best_global_step is None else self._uuids.get(state.best_global_step)
        # None also for a checkpoint that is the best one itself: its own `latest_checkpoint` names it.
        path = Path(args.output_dir) / ("checkpoint-%d" % step)
        uuid = self._session.save(path, step, {} if best is None else {_BEST: best})
        if uuid is not None:
            self._uuids[step] = uuid

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """End the process of a training that had to leave; close a complete one."""
        if self._session.leaving:
            self._session.leave()
        self._session.check_searcher_metric()
        self._session.close()

    def _leave_if_asked(self, state: TrainerState, control: TrainerControl) -> None:
        # A training that ends at this step is complete: it has nothing to leave for later.
        if state.max_steps > 0 and state.global_step >= state.max_steps:
            return
        if self._session.asked_to_leave():
            control.should_log = True  # the mean loss since the last report, which no checkpoint holds
            control.should_save = True
            control.should_training_stop = True


def _with_best(folder: Path, made: Path, best: Optional[Path]) -> Path:
    """Make a folder of links to a checkpoint's files, whose `trainer_state.json` says where Trainer's best model lies
    now. The best checkpoint that the file names was in the output folder of an earlier attempt, which is gone."""
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    if state.get("best_model_checkpoint") is None:
        return folder
    itself = state.get("best_global_step") == state.get("global_step")
    state["best_model_checkpoint"] = str(folder if itself else best) if itself or best is not None else None
    unfinished = made.with_name("%s.%d" % (made.name, os.getpid()))
    unfinished.mkdir(parents=True)
    for path in folder.iterdir():
        if path.name != _STATE:
            (unfinished / path.name).symlink_to(path)
    (unfinished / _STATE).write_text(json.dumps(state), encoding="utf-8")
    try:
        unfinished.rename(made)
    except OSError:  # another rank of this node was first
        shutil.rmtree(str(unfinished))
    return made


def _session(context: Optional[Context]) -> Session:
    return Session("transformers", transformers.__version__, context, _LOWEST)


def _numbers(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the metrics without what no master can draw: text such as that of a progress."""
    return {name: value for name, value in metrics.items() if not isinstance(value, str)}
