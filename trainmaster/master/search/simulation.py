"""Runs a search on recorded learning curves: the production code, with trials that take their values from there.

Jobs wait in a queue, take one of a number of places, report once a unit, may die and start again, and leave when the
search says so. Time is simulated: hours of a cluster take milliseconds.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainmaster.master.search.actions import Action, Create, ExitReason, PauseTrial, ResumeTrial, StopTrial
from trainmaster.master.search.search import Search
from trainmaster.master.values.search import SearchGoal

MOST_DEATHS = 5  # of one trial, after which it has failed
DECADES = 100.0  # the largest of these numbers is so many times the smallest, or more: two decades


@dataclass(frozen=True)
class LearningCurve:
    """`values`: of the metric, one a unit of training; the trial is over at their end. `seconds`: what a unit took."""

    number: int
    values: Sequence[float]
    seconds: float


class LearningCurves(Protocol):
    """Where trials take their values from."""

    def curve(self, hparams: Mapping[str, Any], taken: Collection[int]) -> LearningCurve:
        """Return what a trial with these hyperparameters reports. `taken`: the curves that other trials have."""


class RecordedCurves:
    """Curves of trials that were trained. A point that is not among them gets the curve of the nearest one that no
    other trial has. Only names that the recorded points have count. Numbers that span two decades or more are compared
    by their logarithm."""

    def __init__(
        self, points: Sequence[Mapping[str, Any]], values: Sequence[Sequence[float]], seconds: Sequence[float]
    ) -> None:
        """All by trial: hyperparameters, nested or by dotted names; values of the metric; seconds of a unit."""
        self._points = [dict(_flat(point)) for point in points]
        self._values, self._seconds = values, seconds
        self._names = sorted({name for point in self._points for name in point})
        self._places = {self._key(point): place for place, point in enumerate(self._points)}
        self._scales: dict[str, float] = {}
        self._logarithmic: set[str] = set()
        for name in self._names:
            given = [point[name] for point in self._points if name in point]
            if not all(isinstance(value, int | float) for value in given):
                continue
            low, high = float(min(given)), float(max(given))
            if low > 0 and high >= DECADES * low:
                self._logarithmic.add(name)
                low, high = math.log(low), math.log(high)
            self._scales[name] = (high - low) or 1.0

    def curve(self, hparams: Mapping[str, Any], taken: Collection[int]) -> LearningCurve:
        wanted = {name: value for name, value in _flat(hparams) if name in self._names}
        place = self._places.get(self._key(wanted))
        if place is None:
            free = [at for at in range(len(self._points)) if at not in taken] or range(len(self._points))
            place = min(free, key=lambda at: self._distance(self._points[at], wanted))
        return LearningCurve(place, self._values[place], self._seconds[place])

    def _key(self, point: Mapping[str, Any]) -> Any:
        return tuple((name, _same(point[name])) for name in self._names if name in point)

    def _distance(self, point: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
        total = 0.0
        for name in self._names:
            if (name in point) != (name in wanted):
                total += 1
            elif name in point:
                total += self._apart(name, point[name], wanted[name])
        return total

    def _apart(self, name: str, one: Any, other: Any) -> float:
        if name not in self._scales or not isinstance(other, int | float):
            return float(_same(one) != _same(other))
        if name in self._logarithmic and other > 0:
            one, other = math.log(one), math.log(other)
        return float(((one - other) / self._scales[name]) ** 2)


@dataclass(frozen=True)
class SimulatedCluster:
    """`places`: how many trials train at the same time. `delay`: how long a job waits in the queue before it may start,
    in seconds, given a random stream. `deaths`: the part of all jobs that die on the way. `walltime`: seconds after
    which a job is cut and queued again; its trial keeps the units that it has reported. `slots`: of each job."""

    places: int
    delay: Callable[[random.Random], float] = lambda _: 0.0
    deaths: float = 0.0
    walltime: float = math.inf
    slots: int = 1


@dataclass
class SimulationResult:
    """`bests`: each time at which a better value than all before was reported, with it. `spent`: for each of them the
    slot-seconds that all jobs had used by then. `trained`: units, by trial."""

    bests: list[tuple[float, float]] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)
    end: float = 0.0
    slot_seconds: float = 0.0
    done: bool = False  # the search ended; else the time was over

    def first(self, target: float, *, smaller_is_better: bool = True) -> float | None:
        """Return when a value as good as `target` was first reported; None where it never was."""
        sign = 1 if smaller_is_better else -1
        return next((at for at, value in self.bests if sign * value <= sign * target), None)


@dataclass
class _Trial:
    curve: LearningCurve
    state: str = "queued"  # running, paused, over
    units: int = 0  # trained and saved
    deaths: int = 0
    attempt: int = 0
    used: float = 0.0  # slot-seconds
    since: float | None = None  # when its job began
    fresh: int = 0  # units that its job has trained


class Searching(Protocol):
    """Receives the reports of trials: `Search`, or a search of another package that is compared with it."""

    def validation(
        self,
        request_id: str,
        metrics: Mapping[str, Any],
        steps_completed: int,
        *,
        slot_seconds: float = 0.0,
        at: float = 0.0,
    ) -> list[Action]: ...

    def exited(self, request_id: str, *, slot_seconds: float = 0.0, at: float = 0.0) -> list[Action]: ...

    def exited_early(
        self, request_id: str, reason: ExitReason, *, slot_seconds: float = 0.0, at: float = 0.0
    ) -> list[Action]: ...


class Simulation:
    """One run of one search."""

    def __init__(
        self,
        search: Searching,
        actions: Sequence[Action],
        goal: SearchGoal,
        curves: LearningCurves,
        cluster: SimulatedCluster,
        seed: int,
    ) -> None:
        """Take a search that has begun, with its first actions."""
        self.search = search
        self._curves, self._cluster = curves, cluster
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._metric, self._time_metric = goal.metric, goal.time_metric or "batches"
        self._sign = 1 if goal.smaller_is_better else -1
        self._free = cluster.places
        self._trials: dict[str, _Trial] = {}
        self._taken: set[int] = set()
        self._queue: deque[str] = deque()
        self._events: list[tuple[float, int, str, str, int]] = []  # time, order, kind, trial, attempt
        self._order = 0
        self._now = 0.0
        self.outcome = SimulationResult()
        self._carry_out(actions)

    @classmethod
    def of(
        cls,
        searcher: Mapping[str, Any],
        space: Mapping[str, Any],
        curves: LearningCurves,
        cluster: SimulatedCluster,
        seed: int,
    ) -> Simulation:
        """Begin a search with these sections of a configuration. Raises SearchError, as `Search.start`."""
        search, actions = Search.start(searcher, space, seed, at=0.0)
        return cls(search, actions, SearchGoal.from_json(searcher), curves, cluster, seed)

    def run(self, until: float = math.inf) -> SimulationResult:
        """Run to the end of the search, or of the time."""
        while self._events and self._events[0][0] <= until:
            self._now, _, kind, key, attempt = heapq.heappop(self._events)
            trial = self._trials[key]
            if trial.attempt == attempt and trial.state == "running":
                if kind == "begin":
                    self._begin(key, trial)
                elif kind == "die":
                    self._die(key, trial)
                elif kind == "cut":
                    self._cut(key, trial)
                else:
                    self._report(key, trial)
        self.outcome.done = not self._events
        self.outcome.end = min(until, self._now) if self._events else self._now
        self.outcome.trained = [trial.units for trial in self._trials.values()]
        return self.outcome

    # -- inside

    def _schedule(self, delay: float, kind: str, key: str) -> None:
        self._order += 1
        heapq.heappush(self._events, (self._now + delay, self._order, kind, key, self._trials[key].attempt))

    def _fill(self) -> None:
        while self._free and self._queue:
            key = self._queue.popleft()
            trial = self._trials[key]
            if trial.state != "queued":
                continue
            self._free -= 1
            trial.state = "running"
            trial.attempt += 1
            self._schedule(self._cluster.delay(self._random), "begin", key)

    def _begin(self, key: str, trial: _Trial) -> None:
        trial.since, trial.fresh = self._now, 0
        left = (len(trial.curve.values) - trial.units) * trial.curve.seconds
        if self._cluster.deaths and self._random.random() < self._cluster.deaths:
            self._schedule(self._random.random() * min(left, self._cluster.walltime), "die", key)
        self._train(key, trial)

    def _train(self, key: str, trial: _Trial) -> None:
        """Begin a unit, which the walltime may cut."""
        room = self._cluster.walltime - trial.fresh * trial.curve.seconds
        if room < trial.curve.seconds * (1 - 1e-9):
            self._schedule(max(room, 0.0), "cut", key)
        else:
            self._schedule(trial.curve.seconds, "report", key)

    def _report(self, key: str, trial: _Trial) -> None:
        trial.units += 1
        trial.fresh += 1
        value = float(trial.curve.values[trial.units - 1])
        if math.isfinite(value) and (
            not self.outcome.bests or self._sign * value < self._sign * self.outcome.bests[-1][1]
        ):
            self.outcome.bests.append((self._now, value))
            self.outcome.spent.append(self.outcome.slot_seconds + sum(map(self._running, self._trials.values())))
        metrics = {self._metric: value, self._time_metric: trial.units}
        used = trial.used + self._running(trial)
        self._carry_out(self.search.validation(key, metrics, trial.units, slot_seconds=used, at=self._now))
        if trial.state == "running":
            if trial.units == len(trial.curve.values):
                self._leave(trial, "over")
                self._tell_end(key, trial, None)
            else:
                self._train(key, trial)
        self._fill()

    def _cut(self, key: str, trial: _Trial) -> None:
        if trial.fresh == 0:  # no later job of it comes further
            self._die(key, trial)
            return
        self._leave(trial, "queued")
        self._queue.append(key)
        self._fill()

    def _die(self, key: str, trial: _Trial) -> None:
        trial.deaths += 1
        if trial.deaths > MOST_DEATHS:
            self._leave(trial, "over")
            self._tell_end(key, trial, ExitReason.ERRORED)
        else:
            self._leave(trial, "queued")
            self._queue.append(key)
        self._fill()

    def _leave(self, trial: _Trial, state: str) -> None:
        if trial.state == "running":
            self._free += 1
            took = self._running(trial)
            trial.used += took
            self.outcome.slot_seconds += took
        trial.state, trial.since = state, None
        trial.attempt += 1  # what is scheduled for it is void

    def _running(self, trial: _Trial) -> float:
        """Return the slot-seconds that a trial's present job has used."""
        return 0.0 if trial.since is None else (self._now - trial.since) * self._cluster.slots

    def _tell_end(self, key: str, trial: _Trial, reason: ExitReason | None) -> None:
        spending = {"slot_seconds": trial.used, "at": self._now}
        if reason is None:
            self._carry_out(self.search.exited(key, **spending))
        else:
            self._carry_out(self.search.exited_early(key, reason, **spending))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        ended = []
        for action in actions:
            match action:
                case Create(key, hparams, parent=parent):
                    trial = self._trials[key] = _Trial(self._curves.curve(hparams, self._taken))
                    self._taken.add(trial.curve.number)
                    if parent is not None:  # which may have come further than what is known of the copy
                        trial.units = min(self._trials[parent].units, len(trial.curve.values) - 1)
                    self._queue.append(key)
                case StopTrial(key):
                    self._leave(self._trials[key], "over")
                    ended.append(key)
                case PauseTrial(key):
                    self._leave(self._trials[key], "paused")
                case ResumeTrial(key):
                    self._trials[key].state = "queued"
                    self._queue.appendleft(key)
        for key in ended:
            self._tell_end(key, self._trials[key], None)
        self._fill()


def _flat(point: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in point.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _same(value: Any) -> Any:
    """Return what is equal for equal values: 1, 1.0 and True are, of which a table may have any."""
    return float(value) if isinstance(value, int | float) else repr(value)
