"""`DetCallback`: the callback of `determined.transformers` 0.38.1, for scripts that have it.

New scripts are better served by `TrainmasterCallback`, which needs no context, leaves after any step, and continues in
the middle of an epoch with the same batches.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any, Dict, List, Mapping, Optional

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from trainmaster.core import Context, get_cluster_info

logger = logging.getLogger("trainmaster.transformers")

_SPEED = ("_runtime", "_per_second", "_compilation_time")  # how names of metrics end that no search wants


class DetCallback(TrainerCallback):  # type: ignore[misc]
    """Reports what Trainer logs, stores the checkpoints that it writes, and stops the training when the job must leave.

    Metrics keep Trainer's names; `batches` and `epochs` come beside them. The newest checkpoint of the trial is
    downloaded into `args.output_dir`, and `args.resume_from_checkpoint` names it.

    Args:
        core_context: What `core.init()` returned.
        args: The arguments of the Trainer; changed where the trial continues.
        filter_metrics: Parts of the names of metrics that are reported; all where there are none.
        user_data: Stored with every checkpoint, as `my_data.json`.

    Raises:
        RuntimeError: Outside of a job.
        ValueError: The search counts a trial's length otherwise than the arguments do.
    """

    def __init__(
        self,
        core_context: Context,
        args: TrainingArguments,
        filter_metrics: Optional[List[str]] = None,
        user_data: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__()
        info = get_cluster_info()
        if info is None:
            raise RuntimeError("DetCallback works in a job only; TrainmasterCallback also outside of one")
        self.core_context = core_context
        self.filter_metrics = list(filter_metrics or [])
        self.user_data = user_data
        self.info = info
        self._trained_at = self._evaluated_at = self._saved_at = -1  # steps of the last reports and checkpoint
        self._percent = 0
        self._wanted: List[str] = []  # metrics that every validation must have
        self.load_last_checkpoint(args)
        if info.trial_info is not None:
            searcher: Mapping[str, Any] = info.trial._config.get("searcher") or {}
            _check_length(searcher, args)
            self._wanted = [searcher[key] for key in ("metric", "time_metric") if searcher.get(key)]

    def load_last_checkpoint(self, args: TrainingArguments) -> None:
        """Download the checkpoint from which the trial continues. Does nothing at its start, and where
        `args.overwrite_output_dir` says that nothing is to be continued."""
        latest = self.info.latest_checkpoint
        if latest is None or getattr(args, "overwrite_output_dir", False):
            return
        self.core_context.checkpoint.download(latest, args.output_dir)
        args.resume_from_checkpoint = get_last_checkpoint(args.output_dir)
        logger.info("the training continues from %s", args.resume_from_checkpoint)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Optional[Mapping[str, Any]] = None,
        **more: Any,
    ) -> None:
        """Report. Stop if asked to; Trainer saves at the end of the epoch, which it then takes this for."""
        if not logs:
            return
        metrics = self._chosen(logs)
        metrics.setdefault("batches", state.global_step)
        metrics.setdefault("epochs", state.epoch)
        if any(name.startswith("eval_") for name in logs):
            if self._evaluated_at != state.global_step:
                self._evaluated_at = state.global_step
                self._check(metrics)
                self.core_context.train.report_validation_metrics(state.global_step, metrics)
        elif any(name.startswith("test_") for name in logs):
            logger.info("metrics of a test are not reported")
        elif self._trained_at != state.global_step:  # the last report is followed by a summary of the same step
            self._trained_at = state.global_step
            self.core_context.train.report_training_metrics(state.global_step, metrics)
        if self.core_context.preempt.should_preempt():
            control.should_training_stop = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Store the checkpoint that Trainer has written, below a folder of its step."""
        self._saved_at = step = state.global_step
        folder = "checkpoint-%d" % step
        if state.is_world_process_zero and self.user_data is not None:
            with open(os.path.join(args.output_dir, folder, "my_data.json"), "w", encoding="utf-8") as file:
                json.dump(self.user_data, file)
        metadata: Dict[str, Any] = {"steps_completed": step}
        if self.info.trial_info is not None:
            metadata["trial_id"] = self.info.trial.trial_id
        wanted = (folder + "/", "runs/")
        self.core_context.checkpoint.upload(
            args.output_dir, metadata, shard=True, selector=lambda name: name.startswith(wanted)
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Report progress, once for each percent."""
        if args.max_steps > -1:
            percent = int(100 * state.global_step / args.max_steps)
            if percent > self._percent:
                self._percent = percent
                self.core_context.train.report_progress(min(1.0, state.global_step / args.max_steps))

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """See to it that a training that ends is evaluated and saved, and one that must leave is saved."""
        if args.max_steps > -1:
            complete = state.global_step >= args.max_steps
        else:
            complete = (state.epoch or 0) >= args.num_train_epochs
            self.core_context.train.report_progress(min(1.0, (state.epoch or 0) / args.num_train_epochs))
        if not (control.should_training_stop or complete):
            return
        if state.global_step > self._evaluated_at and not self.core_context.preempt.should_preempt():
            control.should_evaluate = True
        if state.global_step > self._saved_at:
            control.should_save = True

    def _chosen(self, logs: Mapping[str, Any]) -> Dict[str, Any]:
        def chosen(name: str) -> bool:
            if name == "epoch" or name.endswith(_SPEED):
                return False
            return not self.filter_metrics or any(part in name for part in [*self.filter_metrics, *self._wanted])

        return {name: value for name, value in logs.items() if chosen(name)}

    def _check(self, metrics: Mapping[str, Any]) -> None:
        missing = [name for name in self._wanted if name not in metrics]
        if missing:
            raise ValueError(
                "the searcher waits for the metric %r, which Trainer does not report in an evaluation; it reports: %s"
                % (missing[0], ", ".join(sorted(metrics)))
            )


def _check_length(searcher: Mapping[str, Any], args: TrainingArguments) -> None:
    """Refuse a search that counts a trial's length otherwise than the arguments do."""
    if args.max_steps > -1:
        own, option = ("batches", args.max_steps), "max_steps"
    else:
        own, option = ("epochs", args.num_train_epochs), "num_train_epochs"
    section = searcher.get("max_length")
    if isinstance(section, dict) and section:
        searched, key = next(iter(section.items())), "searcher.max_length"
    elif searcher.get("time_metric") in ("batches", "epochs") and searcher.get("max_time") is not None:
        searched, key = (searcher["time_metric"], searcher["max_time"]), "searcher.max_time"
    else:
        return
    if searched != own:
        raise ValueError(
            "%s says %s %s, and the training's %s is %s: make them agree"
            % (key, searched[1], searched[0], option, own[1])
        )
