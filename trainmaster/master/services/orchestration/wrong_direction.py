"""Notices a search that keeps the worst: trials whose metric gets worse the longer they train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Experiment, Story, Trial
from trainmaster.master.lifecycle.states import State
from trainmaster.master.values.search import SearchGoal

LOOKED_AT = 5  # trials with at least so many
REPORTS = 3  # validations
SUBJECT, EVENT = "search", "Warning"


def warning(session: Session, row: Experiment, trial: Trial) -> str:
    """Return the sentence for a search whose trials nearly all got worse, when `trial` has ended, once; else empty."""
    goal = row.config.searcher
    if not _got_worse(goal, trial.summary_metrics):
        return ""
    session.flush()
    told = select(Story.id).where(Story.experiment_id == row.id, Story.subject == SUBJECT, Story.event == EVENT)
    if session.scalar(told.limit(1)) is not None:
        return ""
    ended = select(Trial.summary_metrics).where(Trial.experiment_id == row.id, Trial.state == State.COMPLETED.value)
    looked_at = [each for each in session.scalars(ended.order_by(Trial.id).limit(50)) if _metric(goal, each)]
    worse = sum(_got_worse(goal, each) for each in looked_at)
    if len(looked_at) < LOOKED_AT or worse < 0.8 * len(looked_at):
        return ""
    wanted = "smaller" if goal.smaller_is_better else "larger"
    other = str(not goal.smaller_is_better).lower()
    return (
        f"In {worse} of {len(looked_at)} trials {goal.metric} got worse the longer they trained: {wanted} values "
        f"count as better. If that is not so, set searcher.smaller_is_better: {other}"
    )


def _metric(goal: SearchGoal, summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    found = ((summary or {}).get("validation_metrics") or {}).get(goal.metric)
    return found if isinstance(found, Mapping) and (found.get("count") or 0) >= REPORTS else None


def _got_worse(goal: SearchGoal, summary: Mapping[str, Any] | None) -> bool:
    """Whether the last value is the worst of several that differ."""
    metric = _metric(goal, summary)
    if metric is None:
        return False
    worst, best = (metric.get(key) for key in (("max", "min") if goal.smaller_is_better else ("min", "max")))
    return metric.get("last") == worst != best
