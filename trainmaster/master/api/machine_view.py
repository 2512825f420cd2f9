"""The endpoint behind a trial's view of its machines: the profiler's series, thinned for a chart."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.metrics.series import thinned

router = APIRouter(prefix="/api/x1", tags=["trials"])

MOST_SERIES = 500


class MachineSeries(Shape):
    """Measurements of a node, or of one of its GPUs (`gpu`, else empty); `at`: seconds since 1970."""

    name: str
    node: str
    gpu: str
    at: list[float]
    values: list[float]


class Machine(Shape):
    """The first MOST_SERIES series of `total`."""

    series: list[MachineSeries]
    total: int


@router.get("/trials/{trial_id}/machine")
def machine(
    trial_id: int, master: UsesMaster, caller: UserCaller, points: Annotated[int, Query(ge=2, le=5000)] = 300
) -> Machine:
    master.trials.get(trial_id)  # raises NotFound
    series = master.profiler.read(trial_id)
    shown = []
    for one, measured in list(series.items())[:MOST_SERIES]:
        kept = thinned(measured.values, points)
        shown.append(
            MachineSeries(
                name=one.name,
                node=one.agent,
                gpu=one.gpu,
                at=[round(epoch(measured.times[at]), 3) for at in kept],
                values=[measured.values[at] for at in kept],
            )
        )
    return Machine(series=shown, total=len(series))
