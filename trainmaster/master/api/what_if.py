"""The endpoint that replays an experiment's curves through another searcher."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.views.what_if import WhatIf

router = APIRouter(prefix="/api/x1", tags=["experiments"])


class PostWhatIf(Body):
    """`searcher`: keys of a `searcher` section that replace the experiment's. `workers`: trials at the same time; null:
    as many as the searcher runs. `delay`: median seconds in the queue; `delay_spread`: the standard deviation of their
    logarithm. `deaths`: the part of all jobs that die and start again."""

    searcher: dict[str, Any] = {}  # noqa: RUF012
    workers: int | None = Field(None, ge=1, le=1024)
    seeds: int = Field(5, ge=1, le=50)
    delay: float = Field(0.0, ge=0, le=1e7)
    delay_spread: float = Field(0.0, ge=0, le=5)
    deaths: float = Field(0.0, ge=0, le=0.9)


class SearchRun(Shape):
    """`bests`: seconds since the start and value of each improvement; `lengths`: units trained, and how many trials."""

    bests: list[list[float]]
    seconds: float
    slot_seconds: float
    trials: int
    lengths: list[list[int]]


class WhatIfAnswer(Shape):
    """`recorded`: what the experiment itself did. `trials`: recorded ones with values; `short`: those of them that the
    search stopped, of which nothing more is known. `runs`: one a seed."""

    metric: str
    smaller_is_better: bool
    searcher: str
    workers: int
    recorded: SearchRun
    trials: int
    short: int
    runs: list[SearchRun]


@router.post("/experiments/{experiment_id}/what-if")
def what_if(experiment_id: int, body: PostWhatIf, master: UsesMaster, caller: UserCaller) -> WhatIfAnswer:
    """Simulate another searcher on the recorded curves of an experiment."""
    delay = (body.delay, body.delay_spread)
    found = master.what_ifs.run(experiment_id, WhatIf(body.searcher, body.workers, body.seeds, delay, body.deaths))
    return WhatIfAnswer(
        metric=found.goal.metric,
        smaller_is_better=found.goal.smaller_is_better,
        searcher=found.searcher,
        workers=found.workers,
        recorded=SearchRun(**found.recorded),
        trials=found.trials,
        short=found.short,
        runs=[SearchRun(**run) for run in found.runs],
    )
