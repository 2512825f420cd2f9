"""What a search knew at each moment: who reached which rung when, with which value, and where the cut lay then; and who
was resumed from a rung on which it had been paused.

The order, ranks and cuts come from the search itself. It has no clock: times are those of the decisions in the story,
and of the reports for trials that went on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from trainmaster.master.services.views import search_pauses
from trainmaster.master.services.views.search_pauses import SearchPause
from trainmaster.master.values.search import SearchGoal

GOES_ON, STOPPED, PAUSED, TOP, FAILED = "goes on", "stopped", "paused", "top", "failed"
RESUMED = "resumed"


@dataclass(frozen=True)
class RungEvent:
    """A trial, by its id, at a rung of a bracket. `story`: the id of the decision that stopped or paused it here, or
    resumed it."""

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
            *(
                _events(number, bracket, times, brackets[number], goal.smaller_is_better)
                for number, bracket in enumerate(arrivals)
            ),
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
        self.pauses = search_pauses.read(session, row.id)
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


def _events(
    number: int, arrivals: Sequence[Arrival], times: _Times, bracket: BracketRanking, smaller_is_better: bool
) -> Iterable[RungEvent]:
    """Those of a bracket, with times that rise with the order: the clock of a job may be wrong, the master's is taken
    where it has written one down."""
    known = {(arrival.trial, arrival.rung) for arrival in arrivals}
    pauses = _pauses_at(arrivals, times, bracket)
    decisions, told = [], []
    for place, one in enumerate(arrivals):
        pause = pauses.get(place)
        decision = PAUSED if pause else _decision(one, (one.trial, one.rung + 1) in known, bracket)
        decisions.append(decision)
        stop = times.stops.get(times.ids.get(one.trial, 0)) if decision not in (GOES_ON, PAUSED) else None
        told.append((pause.story, pause.at) if pause else stop)
    moments = [
        story[1]
        if story
        else times.reached(one.trial, one.rung)
        if decision in (GOES_ON, PAUSED)
        else times.ended(times.ids.get(one.trial, 0))
        for one, decision, story in zip(arrivals, decisions, told, strict=True)
    ]
    latest = float("inf")
    for place in range(len(moments) - 1, -1, -1):
        moments[place] = min(moments[place], latest)
        if told[place] or decisions[place] not in (GOES_ON, PAUSED):
            latest = moments[place]
    rungs, now = _Rungs(times, smaller_is_better), 0.0
    for place, (one, decision, at) in enumerate(zip(arrivals, decisions, moments, strict=True)):
        for until, left in rungs.left(at, one.trial):
            now = max(now, until)
            yield replace(left, at=now, bracket=number)
        now = max(now, at)
        rungs.arrive(one, pauses.get(place))
        trial, story = times.ids.get(one.trial), told[place]
        if trial is not None:
            yield RungEvent(now, number, trial, one, decision, story[0] if story else None)
    for until, left in rungs.left(float("inf")):
        now = max(now, until)
        yield replace(left, at=now, bracket=number)


class _Rungs:
    """Who has reached the rungs of a bracket, and who was paused there, while its events are told."""

    def __init__(self, times: _Times, smaller_is_better: bool) -> None:
        self._times, self._sign = times, 1.0 if smaller_is_better else -1.0
        self._there: dict[int, list[Arrival]] = defaultdict(list)
        self._paused: dict[int, tuple[Arrival, SearchPause]] = {}  # by trial

    def arrive(self, one: Arrival, pause: SearchPause | None) -> None:
        self._there[one.rung].append(one)
        if pause is not None:
            self._paused[one.trial] = one, pause

    def left(self, until: float, arriving: int | None = None) -> list[tuple[float, RungEvent]]:
        """Take out the trials that were resumed by a moment, or stopped in their pause, in order; one that arrives at
        the next rung was resumed before, whatever its clock says."""
        found = []
        for trial, (one, pause) in list(self._paused.items()):
            key = self._times.ids.get(trial, 0)
            stop = self._times.stops.get(key)
            at, story = (pause.until, pause.resumed_by) if pause.until is not None or not stop else (stop[1], stop[0])
            if key and at is not None and (at < until or trial == arriving):
                del self._paused[trial]
                decision = STOPPED if pause.until is None else RESUMED
                found.append((at, RungEvent(at, 0, key, self._standing(one), decision, story)))
        return sorted(found, key=lambda each: each[0])

    def _standing(self, one: Arrival) -> Arrival:
        """Return where a trial stands on its rung now."""
        there = self._there[one.rung]
        better = sum(other.value is not None and self._is_better(other, one) for other in there)
        last = there[-1]
        return replace(one, rank=better + 1, of=last.of, keep=last.keep, cut=last.cut)

    def _is_better(self, other: Arrival, one: Arrival) -> bool:
        return self._sign * float(other.value or 0.0) < self._sign * float(one.value or 0.0)


def _pauses_at(arrivals: Sequence[Arrival], times: _Times, bracket: BracketRanking) -> Mapping[int, SearchPause]:
    """Return the pauses of trials by the places of the arrivals that led to them."""
    if not bracket.pauses:
        return {}
    beyond: dict[int, list[int]] = defaultdict(list)  # by trial: places of arrivals that were not among the best
    for place, one in enumerate(arrivals):
        if one.value is not None and one.rank > one.keep and one.rung < len(bracket.rungs) - 1:
            beyond[one.trial].append(place)
    found: dict[int, SearchPause] = {}
    for trial, places in beyond.items():
        pauses = times.pauses.get(times.ids.get(trial, 0), [])
        if len(places) > len(pauses):  # with one report it reached several rungs, and was paused on the last
            places = [place for place in places if not _jumps(arrivals, place)]
        found |= zip(places, pauses, strict=False)
    return found


def _jumps(arrivals: Sequence[Arrival], place: int) -> bool:
    """Whether the next arrival is the same trial's."""
    return place + 1 < len(arrivals) and arrivals[place + 1].trial == arrivals[place].trial


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
