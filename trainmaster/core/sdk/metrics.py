"""`TrialMetrics`: one report of a trial."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Iterator, List, Optional, Sequence

from trainmaster.core.sdk.connection import Connection


class TrialMetrics:
    """One report.

    Attributes:
        trial_id: Whose.
        trial_run_id: Of which run of the trial.
        steps_completed: Since the start of the trial.
        end_time: When it was reported.
        metrics: Names and values.
        group: `training`, `validation`, or another one.
        batch_metrics: Those of each batch, where they were reported.
    """

    def __init__(
        self,
        trial_id: int,
        trial_run_id: int,
        steps_completed: int,
        end_time: datetime.datetime,
        metrics: Dict[str, Any],
        group: str,
        batch_metrics: Optional[List[Dict[str, Any]]] = None,
    ) -> None:
        self.trial_id = trial_id
        self.trial_run_id = trial_run_id
        self.steps_completed = steps_completed
        self.end_time = end_time
        self.metrics = metrics
        self.group = group
        self.batch_metrics = batch_metrics

    @classmethod
    def of(cls, found: Dict[str, Any], group: Optional[str]) -> TrialMetrics:
        """Make one of the API's answer."""
        group = found.get("group") or group or ""
        values = found["metrics"]
        key = "validation_metrics" if group == "validation" else "avg_metrics"
        return cls(
            trial_id=found["trialId"],
            trial_run_id=found["trialRunId"],
            steps_completed=found["totalBatches"],
            end_time=_time(found["endTime"]),
            metrics=values.get(key) or values.get("avg_metrics") or {},
            group=group,
            batch_metrics=values.get("batch_metrics"),
        )

    @property
    def total_batches(self) -> int:
        """An older name of `steps_completed`."""
        return self.steps_completed

    def __repr__(self) -> str:
        return "TrialMetrics(trial_id=%d, group=%r, steps_completed=%d, metrics=%r)" % (
            self.trial_id,
            self.group,
            self.steps_completed,
            self.metrics,
        )


# Older names.
TrainingMetrics = ValidationMetrics = TrialMetrics


def reports_of(session: Connection, trial_ids: Sequence[int], group: str) -> Iterator[TrialMetrics]:
    """Yield the reports of trials, in the order of the trials and their steps."""
    query = {"trialIds": list(trial_ids), "group": group}
    for batch in session.stream("/api/v1/trials/metrics/trial_metrics", query):
        for found in batch["metrics"]:
            yield TrialMetrics.of(found, group)


def _time(text: str) -> datetime.datetime:
    # Python before 3.11 reads neither the Z nor more or fewer than six digits.
    moment, _, fraction = text.rstrip("Z").partition("+")[0].partition(".")
    read = datetime.datetime.strptime(moment + "+0000", "%Y-%m-%dT%H:%M:%S%z")
    return read.replace(microsecond=int((fraction + "000000")[:6]))
