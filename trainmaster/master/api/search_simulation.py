"""The endpoints that simulate searches on recorded curves."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments.creation import ExperimentRequest
from trainmaster.master.services.views import recorded_curves
from trainmaster.master.services.views.search_simulation import SimulatedSearch, SimulationRequest

router = APIRouter(prefix="/api/x1", tags=["experiments"])


class PostWhatIf(Body):
    """`searcher`: keys of a `searcher` section that replace the experiment's. `workers`: trials at the same time; null:
    as many as the searcher runs. `delay`: median seconds in the queue; `delay_spread`: the standard deviation of their
    logarithm. `deaths`: the part of all jobs that die and start again. `walltime`: seconds after which a job is cut and
    queued again; its trial keeps what it has reported."""

    searcher: dict[str, Any] = {}  # noqa: RUF012
    workers: int | None = Field(None, ge=1, le=1024)
    seeds: int = Field(5, ge=1, le=50)
    delay: float = Field(0.0, ge=0, le=1e7)
    delay_spread: float = Field(0.0, ge=0, le=5)
    deaths: float = Field(0.0, ge=0, le=0.9)
    walltime: float | None = Field(None, gt=0, le=1e8)

    def asked(self) -> SimulationRequest:
        delay = (self.delay, self.delay_spread)
        return SimulationRequest(self.searcher, self.workers, self.seeds, delay, self.deaths, self.walltime)


class PostSimulation(PostWhatIf):
    """`config`: the text of an experiment's configuration. The curves are those of the experiment `experiment_id`, or a
    table, by trial: `points` (values of hyperparameters by dotted name), `values` (of the metric, one a unit of
    training; null where it was no number) and `seconds` of a unit."""

    config: str
    experiment_id: int | None = Field(None, ge=1, le=2**31 - 1)
    points: list[dict[str, Any]] = []  # noqa: RUF012
    values: list[list[float | None]] = []  # noqa: RUF012
    seconds: list[float] = []  # noqa: RUF012


class SearchRun(Shape):
    """`bests`: seconds since the start and value of each improvement; `spent`: for each the slot-seconds used by then,
    empty where that is not known; `lengths`: units trained, and how many trials."""

    bests: list[list[float]]
    spent: list[float]
    seconds: float
    slot_seconds: float
    trials: int
    lengths: list[list[int]]


class SearchCourse(Shape):
    """The best value over time, at `seconds` since the start: median and quartiles of the simulations; null while too
    few of them have a value."""

    seconds: list[float]
    lower: list[float | None]
    median: list[float | None]
    upper: list[float | None]


class SearchSimulation(Shape):
    """`recorded`: what the experiment itself did; null for a table. `trials`: recorded ones with values; `short`: those
    of them that the search stopped, of which nothing more is known. `runs`: one a seed."""

    metric: str
    smaller_is_better: bool
    time_metric: str
    searcher: str
    workers: int
    recorded: SearchRun | None
    trials: int
    short: int
    runs: list[SearchRun]
    course: SearchCourse


@router.post("/experiments/{experiment_id}/what-if")
def what_if(experiment_id: int, body: PostWhatIf, master: UsesMaster, caller: UserCaller) -> SearchSimulation:
    """Simulate another searcher on the recorded curves of an experiment."""
    return _shown(master.search_simulations.replay(experiment_id, body.asked()))


@router.post("/search/simulate")
def simulate(body: PostSimulation, master: UsesMaster, caller: UserCaller) -> SearchSimulation:
    """Simulate the search of a configuration on a table of recorded curves, or on those of an experiment."""
    if (body.experiment_id is None) == (not body.points):
        raise Invalid("Send either the number of an experiment (experimentId), or a table (points, values, seconds).")
    curves = body.experiment_id or recorded_curves.of_table(body.points, body.values, body.seconds)
    return _shown(master.search_simulations.try_out(caller, ExperimentRequest(body.config), curves, body.asked()))


def _shown(found: SimulatedSearch) -> SearchSimulation:
    return SearchSimulation(
        metric=found.goal.metric,
        smaller_is_better=found.goal.smaller_is_better,
        time_metric=found.units,
        searcher=found.goal.name,
        workers=found.workers,
        recorded=None if found.curves.recorded is None else SearchRun(**found.curves.recorded),
        trials=len(found.curves.points),
        short=found.curves.short,
        runs=[SearchRun(**run) for run in found.runs],
        course=SearchCourse(**found.course),
    )
