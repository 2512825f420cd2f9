"""The metrics that a search waits for, and what to log where a trial does not report them: for every searcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.master.values.search import SearchGoal


def missing_in(goal: SearchGoal, metrics: Mapping[str, Any]) -> list[str]:
    """Sentences on what a trial's first validation lacks."""
    metric, units = goal.metric, goal.time_metric
    missing = []
    if metric and metric not in metrics:
        missing.append(f"{no_metric(metric, metrics)}. The search compares trials by it: searcher.metric names it.")
    if units not in ("", "batches") and units not in metrics:
        missing.append(
            f"The validation has no metric {units}, which searcher.time_metric names: steps_completed counts instead."
        )
    return missing


def never_reported(goal: SearchGoal, reported: Mapping[str, Any]) -> str:
    """Return a sentence for a trial that has ended and never reported the searcher's metric; empty where it did.
    `reported`: the names of its validation metrics."""
    metric = goal.metric
    if metric in reported:
        return ""
    names = ", ".join(sorted(reported))
    what = f"its validations had: {names}" if names else "it reported no validation"
    return f"The trial never reported the validation metric {metric}, which the search waits for ({what})."


def no_metric(metric: str, metrics: Mapping[str, Any]) -> str:
    """Return the clause on a validation without the searcher's metric."""
    names = ", ".join(sorted(map(str, metrics))) or "none"
    return f"The validation has no metric {metric} (its metrics: {names})"
