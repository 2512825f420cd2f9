"""The endpoint that tells what a search has used of its budget, and how it is expected to end."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape

router = APIRouter(prefix="/api/x1", tags=["experiments"])


class PlanBudget(Shape):
    """What the searcher's section limits. `deadline`: ISO 8601."""

    max_trials: int | None
    slot_hours: float | None
    deadline: str | None


class PlanUse(Shape):
    """What is used so far."""

    trials: int
    slot_hours: float


class PlanForecast(Shape):
    """How the search will end, if its trials continue at their pace; null: not known. `end`: ISO 8601."""

    trials: int | None
    slot_hours: float | None
    end: str | None


class PlanWait(Shape):
    """`median`: seconds in the queue, of the last `jobs` of the pool."""

    median: float | None
    jobs: int


class SearchPlanAnswer(Shape):
    """`unit_seconds`: mean seconds of a unit of the time metric. `sentences`: the same in words."""

    budget: PlanBudget
    used: PlanUse
    forecast: PlanForecast
    wait: PlanWait
    unit_seconds: float | None
    sentences: list[str]


@router.get("/experiments/{experiment_id}/search-plan")
def search_plan(experiment_id: int, master: UsesMaster, caller: UserCaller) -> SearchPlanAnswer:
    """Return budget, use and forecast of a search."""
    plan = master.search_plans.read(experiment_id)
    goal, forecast = plan.goal, plan.forecast
    end = None if forecast.end is None else dt.datetime.fromtimestamp(forecast.end).astimezone()
    return SearchPlanAnswer(
        budget=PlanBudget(max_trials=goal.max_trials, slot_hours=goal.slot_hours, deadline=goal.deadline),
        used=PlanUse(trials=plan.trials, slot_hours=plan.slot_seconds / 3600),
        forecast=PlanForecast(
            trials=forecast.trials,
            slot_hours=None if forecast.slot_seconds is None else forecast.slot_seconds / 3600,
            end=None if end is None else end.isoformat(timespec="seconds"),
        ),
        wait=PlanWait(median=plan.wait, jobs=plan.jobs),
        unit_seconds=plan.unit_seconds,
        sentences=plan.sentences,
    )
