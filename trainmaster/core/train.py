"""TrainContext: reports metrics, progress and metadata of a trial to the master."""

from __future__ import annotations

import enum
import logging
import math
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.errors import CoreError, MasterAway
from trainmaster.core.info import TrialInfo
from trainmaster.core.reports import Reports
from trainmaster.core.tensorboard import TensorboardFiles, everything, unchanged
from trainmaster.core.values import NOT_FINITE, check_names, counted_steps, storable, storable_metrics
from trainmaster.runtime.errors import CallFailed, CallRejected
from trainmaster.runtime.master import MasterCalls

logger = logging.getLogger("trainmaster.core")


class EarlyExitReason(enum.Enum):
    """Why a trial ends before its time."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports of one trial. Only the chief's reports count; on the other ranks the same calls do nothing.

    A report is a line appended to a file: the call returns at once, and the report survives a master that is away.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        tensorboard: TensorboardFiles,
        reports: Optional[Reports] = None,
        master: Optional[MasterCalls] = None,
        trial: Optional[TrialInfo] = None,
    ) -> None:
        """Take over a trial; `reports`, `master` and `trial` are None outside a job."""
        self._distributed = distributed
        self._tensorboard = tensorboard
        self._reports = reports
        self._master = master
        self._trial = trial
        self._not_finite: Set[str] = set()  # metrics of which this was said

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Optional[Sequence[Mapping[str, Any]]] = None,
    ) -> None:
        """Report metrics of training.

        Args:
            steps_completed: Number of steps (batches, or whatever the script counts) since the start of the trial.
            metrics: Name and value; numbers, strings, lists and nested dicts. What JSON cannot hold is dropped with a
                warning.
            batch_metrics: The same for each batch since the last report, where wanted.

        Raises:
            ValueError: `steps_completed` is negative or above 2**63 - 1, `metrics` is no dict of names, or they are
                more or longer than the master keeps.
        """
        self._report("training", steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of a validation. The searcher decides by them; the next `should_preempt` returns its
        decision.

        Args:
            steps_completed: Number of steps since the start of the trial.
            metrics: Name and value; it should hold the searcher's metric.

        Raises:
            ValueError: `steps_completed` is negative or above 2**63 - 1, `metrics` is no dict of names, or they are
                more or longer than the master keeps.
        """
        self._report("validation", steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of any group.

        Args:
            group: Name of the group, not empty and without dots.
            steps_completed: Number of steps since the start of the trial.
            metrics: Name and value.

        Raises:
            ValueError: The group's name is not allowed, `steps_completed` is negative or above 2**63 - 1, `metrics`
                is no dict of names, or they are more or longer than the master keeps.
        """
        self._report(group, steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        """Report how much of the training is done.

        Args:
            progress: From 0 to 1.

        Raises:
            ValueError: `progress` is outside of that.
        """
        value = float(progress)
        if math.isnan(value) or not 0.0 <= value <= 1.0:
            raise ValueError("progress must be between 0 and 1, not %r" % (progress,))
        self._add("progress", progress=value)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report that this trial ends before its time.

        Args:
            reason: Why it ends.

        Raises:
            ValueError: `reason` is no EarlyExitReason.
        """
        self._add("early_exit", reason=EarlyExitReason(reason).value)

    def set_status(self, status: str) -> None:
        """Show a word for what the training is doing now.

        Args:
            status: Any text.
        """
        self._add("status", state=str(status))

    def set_metadata(self, metadata: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
        """Store a JSON object with this trial's run.

        Args:
            metadata: Name and value; anything that JSON can hold.

        Returns:
            What was sent; None on the other ranks.

        Raises:
            ValueError: A value cannot be stored as JSON.
        """
        checked = storable(dict(metadata))
        assert isinstance(checked, dict)
        self._add("metadata", metadata=checked)
        return checked if self._distributed.rank == 0 else None

    def get_metadata(self) -> Optional[Dict[str, Any]]:
        """Read the JSON object that is stored with this trial's run.

        Returns:
            The object; None when there is none, or outside of a job.

        Raises:
            MasterAway: The master cannot be reached.
            CoreError: The master refused.
        """
        answer = self._get("/api/v1/runs/%d/metadata", "trial_id")
        metadata = None if answer is None else answer.get("metadata")
        return metadata if isinstance(metadata, dict) else None

    def get_experiment_best_validation(self) -> Optional[float]:
        """Read the best value of the searcher's metric in this experiment so far.

        Returns:
            The value; None when there is none yet, or outside of a job.

        Raises:
            MasterAway: The master cannot be reached.
            CoreError: The master refused.
        """
        answer = self._get("/api/v1/experiments/%d/searcher/best_searcher_validation_metric", "experiment_id")
        metric = None if answer is None else answer.get("metric")
        return None if metric is None else float(metric)

    def get_last_validation(self) -> Optional[int]:
        """Read the steps after which this trial reported its last validation.

        Returns:
            The steps; None when there is none yet, or outside of a job.

        Raises:
            MasterAway: The master cannot be reached.
            CoreError: The master refused.
        """
        answer = self._get("/api/v1/trials/%d", "trial_id")
        found = None if answer is None else (answer.get("trial") or {}).get("latestValidation")
        return None if not found else int(found["totalBatches"])

    def get_tensorboard_path(self) -> Path:
        """Create the folder for TensorBoard's event files.

        Returns:
            Its path, on the node's own disk.
        """
        self._tensorboard.local.mkdir(parents=True, exist_ok=True)
        return self._tensorboard.local

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = everything,
        mangler: Callable[[Path, int], Path] = unchanged,
    ) -> None:
        """Copy new and changed event files to the checkpoint storage.

        Args:
            selector: Called with each file's path; only files for which it returns True are copied.
            mangler: Called with the path relative to the folder and this rank; returns the path to copy to.

        Raises:
            OSError: A file cannot be copied.
        """
        self._tensorboard.upload(selector, mangler)

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Optional[Sequence[Mapping[str, Any]]] = None,
    ) -> None:
        if not isinstance(group, str) or not group or "." in group:
            raise ValueError("a group of metrics needs a name without dots, not %r" % (group,))
        kept = storable_metrics(metrics)
        self._mention_not_finite(kept, steps_completed)
        check_names(kept, group, self._reports.limits if self._reports is not None else {})
        fields: Dict[str, Any] = {
            "group": group,
            "steps_completed": counted_steps(steps_completed),
            "metrics": kept,
        }
        if batch_metrics is not None:
            fields["batch_metrics"] = [storable_metrics(batch) for batch in batch_metrics]
        self._add("metrics", decides=group == "validation", **fields)

    def _mention_not_finite(self, metrics: Mapping[str, Any], steps_completed: int) -> None:
        for name, value in metrics.items():
            if value in NOT_FINITE and name not in self._not_finite and self._distributed.rank == 0:
                self._not_finite.add(name)
                logger.warning("metric %r is %s at step %s", name, value, steps_completed)

    def _add(self, kind: str, *, decides: bool = False, **fields: Any) -> None:
        if self._distributed.rank != 0:
            logger.debug("%s of rank %d is not reported: the chief's is", kind, self._distributed.rank)
        elif self._reports is not None:
            self._reports.add(kind, decides=decides, **fields)
        else:
            logger.info("%s: %s", kind, fields)

    def _get(self, path: str, number: str) -> Optional[Dict[str, Any]]:
        if self._master is None or self._trial is None:
            return None
        try:
            answer = self._master.call("GET", path % getattr(self._trial, number))
        except CallRejected as error:
            if error.http_status == 404:
                return None
            raise CoreError(str(error)) from error
        except CallFailed as error:
            raise MasterAway(str(error)) from error
        return answer if isinstance(answer, dict) else None
