"""What a search has used of its budget, and how it is expected to end, in figures and in words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.config.deadlines import seconds_of
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.search import SearchError
from trainmaster.master.search.budgeted import BudgetedAsha
from trainmaster.master.search.spending import Forecast
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.metrics import series
from trainmaster.master.services.orchestration import stored_search
from trainmaster.master.services.scheduling.pool_waits import median_wait
from trainmaster.master.values.search import SearchGoal


@dataclass(frozen=True)
class SearchPlan:
    """`wait`: median seconds in the pool's queue, and of how many jobs. `unit_seconds`: mean of a unit of the time
    metric."""

    goal: SearchGoal
    trials: int
    slot_seconds: float
    forecast: Forecast
    wait: float | None
    jobs: int
    unit_seconds: float | None
    sentences: list[str]


class SearchPlans(BoundService):
    """Plans of searches."""

    def read(self, experiment_id: int) -> SearchPlan:
        """Return the plan as of now. Raises NotFound."""
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            goal = row.config.searcher
            method = _method(session, row)
            wait, jobs = median_wait(session, row.resource_pool)
            forecast = method.forecast() if method is not None and row.end_time is None else Forecast()
            used = _used(session, row)
            unit = method.spending.pace if method is not None and method.spending is not None else None
            plan = SearchPlan(goal, row.num_trials, used, forecast, wait, jobs, unit, [])
            short = method.shortfall() if method is not None else ""
            plan.sentences.extend(_in_words(plan, row, short))
            return plan


def _method(session: Session, row: Experiment) -> BudgetedAsha | None:
    if row.unmanaged or row.search is None:
        return None
    try:
        method = stored_search.read(session, row).method
    except SearchError:
        return None  # the experiment itself says so
    return method if isinstance(method, BudgetedAsha) and method.spending is not None else None


def _used(session: Session, row: Experiment) -> float:
    until = func.coalesce(Allocation.ended_at, func.now())
    seconds = func.sum(func.extract("epoch", until - Allocation.leased_at) * Allocation.slots)
    query = select(seconds).join(Trial, Trial.id == Allocation.trial_id).where(Trial.experiment_id == row.id)
    return float(session.scalar(query) or 0.0)


def _in_words(plan: SearchPlan, row: Experiment, short: str) -> Iterator[str]:
    goal = plan.goal
    if goal.slot_hours is not None:
        yield f"{plan.slot_seconds / 3600:.3g} of {goal.slot_hours:.3g} slot-hours are used."
    if goal.deadline is not None:
        left = seconds_of(goal.deadline) - epoch(now())
        moment = dt.datetime.fromisoformat(goal.deadline).strftime("%a %Y-%m-%d %H:%M %z")
        yield f"The deadline is {moment}" + (f", in {left / 3600:.3g} hours." if left > 0 else ", which is over.")
    if row.end_time is not None:
        return
    if short:
        yield f"{short}."
    forecast = plan.forecast
    if forecast.trials is not None and forecast.slot_seconds is not None:
        yield (
            f"At the pace of its trials so far, {forecast.trials} trials will have been tried for "
            f"{forecast.slot_seconds / 3600:.3g} slot-hours in all."
        )
    elif goal.slot_hours is not None or goal.deadline is not None:
        yield "How far that reaches is known once trials have reported twice."
    if plan.wait is not None:
        jobs = f"the last {plan.jobs} jobs" if plan.jobs > 1 else "the last job"
        yield f"In pool {row.resource_pool}, {jobs} waited {plan.wait / 60:.3g} minutes in the median."
