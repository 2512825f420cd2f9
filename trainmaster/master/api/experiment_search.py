"""Endpoints that search experiments and list the metrics that they have reported."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from trainmaster.master.api.schemas.entities import Experiment, Pagination, Trial
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape, rfc3339
from trainmaster.master.http.streams import line_of, period_of, with_errors
from trainmaster.master.services.clock import now
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["experiments"])


class SearchRequest(Body):
    filter: str = ""
    sort: str = ""
    limit: int = 0
    offset: int = 0
    project_id: int | None = None


class Found(Shape):
    experiment: Experiment
    best_trial: Trial | None


class SearchAnswer(Shape):
    experiments: list[Found]
    pagination: Pagination


@router.post("/experiments-search")
def search(body: SearchRequest, master: UsesMaster, caller: UserCaller) -> SearchAnswer:
    page = master.experiment_search.search(
        caller, body.project_id or None, body.filter, body.sort, body.offset, body.limit
    )
    time = now()
    shown = [
        Found(experiment=Experiment.of(view), best_trial=Trial.of(best, now=time) if best else None)
        for view, best in page.items
    ]
    return SearchAnswer(experiments=shown, pagination=Pagination.of(page.window))


@router.get("/experiments/metrics-stream/metric-names")
async def names(
    master: UsesMaster,
    caller: UserCaller,
    ids: Annotated[list[int], Query()],
    period: Annotated[float, Query(alias="periodSeconds", ge=0)] = 0.0,
) -> StreamingResponse:
    """Stream a line without names, then each name once, as it is first reported, until the experiments have ended."""
    pause = period_of(master.settings.limits, period)
    first = await master.threads.run(caller, master.metric_lists.of_experiments, caller, ids)

    async def lines() -> AsyncIterator[bytes]:
        names, shown = first, set[tuple[str, str]]()
        yield line_of(_names(names.searcher, []))
        while True:
            if fresh := [one for one in names.named if one not in shown]:
                shown.update(fresh)
                yield line_of(_names(names.searcher, fresh))
            if not names.live or await _closing(master, pause):
                return
            names = await master.threads.run(caller, master.metric_lists.of_experiments, caller, ids)

    return StreamingResponse(with_errors(lines()), media_type="application/json")


async def _closing(master: UsesMaster, period: float) -> bool:
    """Wait for the next read; True when the master stops instead."""
    left = math.ceil(period)
    while left > 0 and not master.wakeups.closed:
        await asyncio.sleep(min(left, 1))
        left -= 1
    return master.wakeups.closed


def _names(searcher: Sequence[str], named: Sequence[tuple[str, str]]) -> Json:
    """`named`: group and name of each metric."""
    return {
        "searcherMetrics": list(searcher),
        "trainingMetrics": [name for group, name in named if group == "training"],
        "validationMetrics": [name for group, name in named if group == "validation"],
        "metricNames": [{"group": group, "name": name} for group, name in named],
    }


@router.get("/experiments/{experiment_id}/validation-history")
def history(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    points = master.metric_lists.validation_history(experiment_id)
    shown = [
        {"trialId": point.trial_id, "endTime": rfc3339(point.at), "searcherMetric": point.value} for point in points
    ]
    return {"validationHistory": shown}
