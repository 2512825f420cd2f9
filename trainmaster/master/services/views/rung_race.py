"""What a search knew at each moment: who reached which rung when, with which value, and where the cut lay then.

The order, ranks and cuts come from the search itself. It has no clock: times are those of the decisions in the story,
and of the reports for trials that went on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Experiment, Story, Trial
from trainmaster.master.search import Arrival, BracketRanking, SearchError
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.orchestration import stored_search
from trainmaster.master.values.search import SearchGoal

GOES_ON, STOPPED, PAUSED, TOP, FAILED = "goes on", "stopped", "paused", "top", "failed"


@dataclass(frozen=True)
class RungEvent:
    """A trial, by its id, at a rung of a bracket. `story`: the id of the decision that stopped it here."""

    at: float
    bracket: int
    trial: int
    arrival: Arrival
    decision: str
    story: int | None


@dataclass(frozen=True)
class RungRace:
    goal: SearchGoal
    brackets: Sequence[BracketRanking]
    events: Sequence[RungEvent]
    """Of all brackets, in order."""


class RungRaces(BoundService):
    """The course of searches over their rungs."""

    def read(self, experiment_id: int) -> RungRace:
        """All of it; without brackets where the search has none or cannot be read. Raises NotFound."""
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            goal = row.config.searcher
            if row.unmanaged:
                return RungRace(goal, (), ())
            try:
                search = stored_search.read(session, row)
            except SearchError:  # of an older release, or of a plugin that is gone
                return RungRace(goal, (), ())
            brackets = search.rankings()
            if not brackets:
                return RungRace(goal, (), ())
            times = _Times(session, row, goal, search.request_ids, brackets)
            arrivals = search.arrivals(times.reached)
        merged = heapq.merge(
            *(_events(number, bracket, times, brackets[number]) for number, bracket in enumerate(arrivals)),
            key=lambda event: event.at,
        )
        return RungRace(goal, brackets, list(merged))


class _Times:
    """When trials reached rungs. Trials are known by their number in the search."""

    def __init__(
        self,
        session: Session,
        row: Experiment,
        goal: SearchGoal,
        request_ids: Sequence[str],
        brackets: Sequence[BracketRanking],
    ) -> None:
        t = Trial.__table__.c
        numbers = {key: number for number, key in enumerate(request_ids)}
        query = select(t.id, t.request_id, t.start_time, t.end_time).where(t.experiment_id == row.id)
        rows = [one for one in session.execute(query) if one.request_id in numbers]
        self.ids = {numbers[one.request_id]: int(one.id) for one in rows}
        self._started = {int(one.id): epoch(one.start_time) for one in rows}
        self._ended = {int(one.id): epoch(one.end_time) for one in rows if one.end_time is not None}
        self.stops = _stops(session, row.id)
        self._units = [[rung.units for rung in bracket.rungs] for bracket in brackets]
        self._bracket_of = {trial: at for at, bracket in enumerate(brackets) for trial in bracket.trials}
        self._reports = _reports(session, list(self._started), goal)

    def reached(self, number: int, rung: int) -> float:
        """When a report said so; the end of a trial that never did."""
        trial = self.ids.get(number, 0)
        units = self._units[self._bracket_of[number]][rung]
        first = min((at for at, time in self._reports.get(trial, ()) if time >= units), default=None)
        return self.ended(trial) if first is None else first

    def ended(self, trial: int) -> float:
        stop = self.stops.get(trial)
        return stop[1] if stop else self._ended.get(trial, self._started.get(trial, 0.0))


def _stops(session: Session, experiment_id: int) -> dict[int, tuple[int, float]]:
    """Return the last decision of the search to stop each trial: the event's id and its time."""
    query = (
        select(Story.trial_id, Story.id, Story.at)
        .ext(distinct_on(Story.trial_id))
        .where(Story.experiment_id == experiment_id, Story.subject == "search", Story.event == "Stop")
        .order_by(Story.trial_id, Story.id.desc())
    )
    return {int(trial): (int(key), epoch(at)) for trial, key, at in session.execute(query) if trial is not None}


def _reports(session: Session, trials: Sequence[int], goal: SearchGoal) -> dict[int, list[tuple[float, float]]]:
    """When each trial reported, and how long it had trained by then in units of the time metric; also what a later
    attempt reported again, since the first report counts."""
    reports: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for trial, pieces in series.blocks(session, trials, Named("validation", goal.metric), goal.units).items():
        for piece in pieces:
            for place, micros in enumerate(piece.times):
                units = piece.epoch(place)
                reports[trial].append((micros / 1e6, piece.steps[place] if units is None else units))
    m = METRICS_OF["validation"].c
    value = m.metrics["validation_metrics"][goal.units]
    replaced = select(m.trial_id, m.at, m.steps, value).where(m.archived, m.trial_id.in_(trials))
    for trial, at, steps, times in session.execute(replaced):
        reports[trial].append((epoch(at), times if isinstance(times, int | float) else steps))
    return reports


def _events(number: int, arrivals: Sequence[Arrival], times: _Times, bracket: BracketRanking) -> Iterable[RungEvent]:
    """Those of a bracket, with times that rise with the order: the clock of a job may be wrong, the master's is taken
    where it has written one down."""
    known = {(arrival.trial, arrival.rung) for arrival in arrivals}
    decisions = [_decision(one, (one.trial, one.rung + 1) in known, bracket) for one in arrivals]
    events = [
        times.ended(times.ids.get(one.trial, 0))
        if decision not in (GOES_ON, PAUSED)
        else times.reached(one.trial, one.rung)
        for one, decision in zip(arrivals, decisions, strict=True)
    ]
    latest = float("inf")
    for place in range(len(events) - 1, -1, -1):
        events[place] = min(events[place], latest)
        if decisions[place] not in (GOES_ON, PAUSED):
            latest = events[place]
    now = 0.0
    for one, decision, at in zip(arrivals, decisions, events, strict=True):
        now = max(now, at)
        trial = times.ids.get(one.trial)
        if trial is not None:
            stop = times.stops.get(trial)
            told = stop[0] if stop and decision not in (GOES_ON, PAUSED) else None
            yield RungEvent(now, number, trial, one, decision, told)


def _decision(one: Arrival, reached_next: bool, bracket: BracketRanking) -> str:
    if reached_next:
        return GOES_ON
    if one.value is None:
        return FAILED
    if one.rung == len(bracket.rungs) - 1:
        return TOP
    if one.rank <= one.keep:
        return GOES_ON
    return PAUSED if bracket.pauses else STOPPED
