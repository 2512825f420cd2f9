"""`async_halving`: asynchronous successive halving (ASHA, Li et al. 2018, arXiv:1810.05934), by stopping.

A trial that reaches a rung is ranked among all that reached it before. The best 1/divisor (at least one) go on to the
next rung; the others are stopped and another random point takes their place. At the top rung every trial is done. Rung
lengths and counts are those of Determined 0.38.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Name, Positive, Steps
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.method import (  # fmt: skip
    ActionQueue,
    Arrival,
    BracketRanking,
    Budget,
    Method,
    Preview,
    RungRanking,
    ValidationReport,
    When,
    given,
)

WORST = sys.float_info.max


@dataclass(frozen=True)
class Goal:
    """Names of the compared metric and of the time metric, for messages only."""

    metric: str
    time_metric: str
    max_time: int


@dataclass
class Rung:
    """Signed metrics (ascending) of the trials that reached `units`, and whose each one is."""

    units: int
    values: list[float] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    stopped: int = 0

    def insert(self, trial: int, value: float) -> int:
        """Rank of the newcomer from 0. It goes before its equals, so that ties go on."""
        rank = bisect_left(self.values, value)
        self.values.insert(rank, value)
        self.trials.insert(rank, trial)
        return rank

    def remove(self, trial: int) -> None:
        if trial in self.trials:
            place = self.trials.index(trial)
            del self.values[place], self.trials[place]


def rung_units(rungs: int, divisor: float, max_time: int) -> list[int]:
    """How long a trial trains before each rung compares it, in units of the time metric, from its start."""
    try:
        return [max(int(max_time / divisor ** (rungs - i - 1)), 1) for i in range(rungs)]
    except OverflowError:
        raise SearchError(
            f"searcher: {rungs} rungs with the divisor {divisor:g} are more than any training time can be divided into"
        ) from None


class AsyncHalving(Method):
    """One bracket. `max_concurrent` 0 means as many as the bottom rung needs to send one trial to the top. `pauses`:
    trials wait on their rungs, and are not stopped there."""

    pauses: ClassVar[bool] = False

    def __init__(self, goal: Goal, rungs: int, divisor: float, max_trials: int, max_concurrent: int) -> None:
        self._goal = goal
        self._divisor = divisor
        self._rungs = [Rung(units) for units in rung_units(rungs, divisor, goal.max_time)]
        self._budget = Budget(max_trials)
        self.max_concurrent = min(max_concurrent or max(int(divisor ** (rungs - 1)), 1), max_trials)
        self._at: dict[int, int] = {}  # running trials without a stop request -> the rung they train for
        self._ended = 0
        self._arrived: list[int] = []  # trials in the order in which they reached rungs; each begins with the lowest

    @property
    def running(self) -> int:
        """Running trials without a stop request."""
        return len(self._at)

    def begin(self, orders: ActionQueue) -> None:
        for _ in range(self.max_concurrent):
            self._create(orders)

    def _create(self, orders: ActionQueue) -> None:
        if self._budget.left:
            self._at[self._begin_trial(orders)] = 0

    def _begin_trial(self, orders: ActionQueue) -> int:
        return orders.create(f"{self._budget.spend()} random points")

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        verdict = self._judge(trial, report)
        if verdict:
            orders.stop(trial, verdict)
            self._create(orders)

    def _judge(self, trial: int, report: ValidationReport) -> str:
        """Walk the trial up the rungs it has reached; return why it must stop, or None when it continues."""
        if report.value is None:
            self._drop(trial)
            return f"{report.complaint}: counted as the worst"
        while True:
            here = self._at[trial]
            rung = self._rungs[here]
            if report.time < rung.units:
                return ""
            rank = rung.insert(trial, report.value)
            self._arrived.append(trial)
            keep = self._keep(rung)
            top = here == len(self._rungs) - 1
            if top or rank >= keep:
                del self._at[trial]
                rung.stopped += 1
                place = f"rung {here + 1} ({rung.units} {self._goal.time_metric})"
                standing = f"rank {rank + 1} of {len(rung.values)} on {self._goal.metric}"
                return f"{place}: {standing}, " + ("the top rung" if top else f"the best {keep} go on")
            self._at[trial] = here + 1

    def _drop(self, trial: int) -> None:
        rung = self._rungs[self._at.pop(trial)]
        rung.insert(trial, WORST)
        self._arrived.append(trial)
        rung.stopped += 1

    def _keep(self, rung: Rung) -> int:
        """How many of a rung's trials go on."""
        return max(int(len(rung.values) / self._divisor), 1)

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        if trial not in self._at:  # it was stopped, and has its successor
            self._ended += 1
            return
        if reason is ExitReason.INVALID_HP:
            del self._at[trial]
            for rung in self._rungs:
                rung.remove(trial)
            self._arrived = [other for other in self._arrived if other != trial]
            self._budget.invalid += 1
        else:
            self._ended += 1
            if reason is None:
                del self._at[trial]  # it trained for less than max_time: its place is free, its rank stands
            else:
                self._drop(trial)
        self._create(orders)

    def progress(self, _running: Mapping[int, float], _ended: int) -> float:
        return self.fraction()

    def fraction(self) -> float:
        """0..1. The factor leaves room for the trials that go on after all have passed the first rung."""
        total = self._budget.max_trials
        return min(max(len(self._rungs[0].values) / (1.2 * total), self._ended / total), 1.0)

    def describe(self) -> str:
        waiting = [0] * len(self._rungs)
        for rung in self._at.values():
            waiting[rung] += 1
        return "; ".join(
            f"rung {i + 1} of {len(self._rungs)} ({rung.units} {self._goal.time_metric}): "
            f"{waiting[i]} running, {rung.stopped} stopped"
            for i, rung in enumerate(self._rungs)
        )

    def rankings(self) -> Sequence[BracketRanking]:
        return (self.bracket(range(self._budget.created)),)

    def bracket(self, trials: Sequence[int]) -> BracketRanking:
        """Return the ranking, with the trials of this bracket."""
        rungs = [self._ranking(place) for place in range(len(self._rungs))]
        return BracketRanking(rungs, trials, len(self._at), self.pauses)

    def _ranking(self, place: int) -> RungRanking:
        rung = self._rungs[place]
        return RungRanking(
            rung.units,
            tuple(rung.trials),
            tuple(None if value >= WORST else value for value in rung.values),
            self._cut(place, rung) if rung.values else None,
            rung.stopped,
        )

    def _cut(self, place: int, rung: Rung) -> float | None:
        """Return the worst value that continues from a rung that is not empty."""
        cut = rung.values[max(self._keep(rung), 1) - 1]
        return cut if place < len(self._rungs) - 1 and cut < WORST else None

    def arrivals(self, when: When) -> Sequence[Sequence[Arrival]]:
        return (self.bracket_arrivals(when),)

    def bracket_arrivals(self, when: When) -> Sequence[Arrival]:
        """Ranks everybody again, in the order in which they came."""
        values = [dict(zip(rung.trials, rung.values, strict=True)) for rung in self._rungs]
        rungs = [Rung(rung.units) for rung in self._rungs]
        arrivals = []
        for trial, place in self._in_order(when):
            value, rung = values[place][trial], rungs[place]
            rank = rung.insert(trial, value)
            arrivals.append(
                Arrival(
                    trial,
                    place,
                    None if value >= WORST else value,
                    rank + 1,
                    len(rung.values),
                    self._keep(rung),
                    self._cut(place, rung),
                )
            )
        return arrivals

    def _in_order(self, when: When) -> list[tuple[int, int]]:
        """Trials and rungs. A search of an earlier release did not record the order: what is missing came before the
        rest, at times that are known from elsewhere."""
        everybody = [(trial, place) for place, rung in enumerate(self._rungs) for trial in rung.trials]
        left = Counter(trial for trial, _ in everybody)
        recorded = []
        for trial in reversed(self._arrived):  # the last time a trial is there is its highest rung
            left[trial] -= 1
            recorded.append((trial, left[trial]))
        missing = set(everybody).difference(recorded)
        return sorted(missing, key=lambda pair: (when(*pair), pair[1], pair[0])) + recorded[::-1]

    def state(self) -> dict[str, Any]:
        return {
            "rungs": [[rung.values, rung.trials, rung.stopped] for rung in self._rungs],
            "at": [list(pair) for pair in self._at.items()],
            "created": self._budget.created,
            "invalid": self._budget.invalid,
            "ended": self._ended,
            "arrived": list(self._arrived),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        for rung, (values, trials, stopped) in zip(self._rungs, state["rungs"], strict=True):
            # PostgreSQL writes a number like 3e300 without an exponent, which is read as another, whole number.
            rung.values, rung.trials, rung.stopped = [float(value) for value in values], list(trials), stopped
        self._at = {trial: rung for trial, rung in state["at"]}
        self._budget.created = int(state["created"])
        self._budget.invalid = int(state["invalid"])
        self._ended = int(state["ended"])
        self._arrived = list(state.get("arrived", ()))


class TimedSearcher(ManyTrials):
    """Options of searchers that compare trials of the same age."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {
        "max_trials": "how many trials there are in all",
        "max_time": "how long a trial trains at most, in units of time_metric",
        "time_metric": "the validation metric that says how long a trial has trained, such as epochs",
    }

    max_trials: Positive | None = None
    max_time: Annotated[Steps, Field(ge=1)] | None = None
    time_metric: Name | None = None

    @property
    def trials(self) -> int:
        """How many trials there are in all."""
        return given(self.max_trials, "max_trials")

    @property
    def goal(self) -> Goal:
        """The compared metric, and for how long a trial trains."""
        metric, time_metric = given(self.metric, "metric"), given(self.time_metric, "time_metric")
        return Goal(metric, time_metric, given(self.max_time, "max_time"))


class HalvingSearcher(TimedSearcher):
    """Options that searchers with rungs share."""

    divisor: float = Field(default=4.0, gt=1)

    def preview_of(self, brackets: Iterable[tuple[int, int]]) -> Preview:
        """Return the preview of brackets of (rungs, trials): every rung full, the best 1/divisor (at least one) of it
        in the next."""
        stops: Counter[int] = Counter()
        for rungs, trials in brackets:
            units = rung_units(rungs, self.divisor, self.goal.max_time)
            for length in units[:-1]:
                on = max(int(trials / self.divisor), 1)
                stops[length] += trials - on
                trials = on
            stops[units[-1]] += trials
        return [(count, length) for length, count in sorted(stops.items()) if count]


class AsyncHalvingSearcher(HalvingSearcher):
    """The section of `async_halving`."""

    required: ClassVar[Mapping[str, str]] = {
        "max_trials": HalvingSearcher.required["max_trials"],
        "num_rungs": "how many rungs the bracket has",
        **HalvingSearcher.required,
    }

    name: Literal["async_halving"]
    num_rungs: Positive | None = None

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        rungs = given(self.num_rungs, "num_rungs")
        return AsyncHalving(self.goal, rungs, self.divisor, self.trials, self.max_concurrent_trials)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return self.preview_of([(given(self.num_rungs, "num_rungs"), self.trials)])
