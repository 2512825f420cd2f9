"""The endpoint behind the rung race: what a search knew at each moment."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.views.rung_race import RungEvent

router = APIRouter(prefix="/api/x1", tags=["experiments"])

COLUMNS = ("at", "bracket", "rung", "trial", "value", "decision", "rank", "of", "keep", "cut", "story")


class RaceBracket(Shape):
    """`units`: of each rung, the lowest first: how far a trial trains before it is compared there. `running`: trials
    that train and were not stopped. `pauses`: those that do not continue from a rung wait on it."""

    units: list[int]
    trials: int
    running: int
    pauses: bool


class RungRace(Shape):
    """Who reached which rung, in order. `rows`: events, values in the order of `columns`, the first of them number
    `first` of `total` (from 1). `at`: seconds since 1970; `bracket` and `rung`: from 0; `value`: null for a trial that
    failed; `decision`: goes on, stopped, paused, top (the top rung, where all are done) or failed, and later, of a
    trial that was paused on the rung, resumed or stopped; `rank` among the `of` trials that had reached the rung by
    then, of which the best `keep` went on; `cut`: the worst value that went on then; `story`: the id of the decision in
    the story of the experiment."""

    metric: str
    smaller_is_better: bool
    time_metric: str
    brackets: list[RaceBracket]
    columns: list[str]
    rows: list[list[Any]]
    first: int
    total: int


@router.get("/experiments/{experiment_id}/rungs")
def rungs(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="leaves out that many events")] = 0,
    limit: Annotated[int, Query(ge=1, le=20_000)] = 20_000,
) -> RungRace:
    """Arrivals of trials at rungs, in order, each with what the search knew and decided then."""
    race = master.rung_races.read(experiment_id)
    shown = race.events[after : after + limit]
    return RungRace(
        metric=race.goal.metric,
        smaller_is_better=race.goal.smaller_is_better,
        time_metric=race.goal.units,
        brackets=[
            RaceBracket(
                units=[rung.units for rung in bracket.rungs],
                trials=len(bracket.trials),
                running=bracket.running,
                pauses=bracket.pauses,
            )
            for bracket in race.brackets
        ],
        columns=list(COLUMNS),
        rows=[_row(event) for event in shown],
        first=after + 1,
        total=len(race.events),
    )


def _row(event: RungEvent) -> list[Any]:
    one = event.arrival
    return [
        round(event.at, 3),
        event.bracket,
        one.rung,
        event.trial,
        one.value,
        event.decision,
        one.rank,
        one.of,
        one.keep,
        one.cut,
        event.story,
    ]
