"""`pbt`: population based training (Jaderberg et al. 2017, arXiv:1711.09846).

A population trains side by side. Every `interval` a trial is compared with all that have reached the same age. One
among the worst gives its place to a new trial, which loads the checkpoint of one of the best and continues with the
hyperparameters of that one, changed a little. So hyperparameters change while the weights train.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from trainmaster.config.searcher import SearcherOptions
from trainmaster.config.shapes import Name, Positive, Steps
from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.async_halving import Goal
from trainmaster.master.search.hyperparameters import sample
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.method import ActionQueue, Method, Preview, ValidationReport, given
from trainmaster.master.search.neighbours import Perturbation


class Pbt(Method):
    """`quantile`: which part of the population is replaced, and from which part of it."""

    def __init__(
        self,
        goal: Goal,
        space: Mapping[str, Any],
        population: int,
        interval: int,
        quantile: float,
        change: Perturbation,
    ) -> None:
        self._goal, self._space, self._interval, self._quantile = goal, space, interval, quantile
        self._change = change
        self.max_concurrent = self._population = population
        self._ages: dict[int, int] = {}  # running trials -> intervals that they, with their forebears, have trained
        self._points: dict[int, dict[str, Any]] = {}  # of the running trials, and of those that may be copied
        self._scores: dict[int, list[tuple[float, int]]] = {}  # by age, the best first: signed values and trials
        self._done = self._replaced = self._copied = 0

    def begin(self, orders: ActionQueue) -> None:
        for number in range(self._population):
            self._create_random(f"member {number + 1} of {self._population}, a random point", orders)

    def _create_random(self, why: str, orders: ActionQueue) -> None:
        point = orders.draw(lambda stream: sample(self._space, stream))
        trial = orders.create(why, point)
        self._ages[trial], self._points[trial] = 0, point

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        age = int(report.time) // self._interval
        if report.value is None:
            self._leave(trial, f"{report.complaint}: counted as the worst", orders)
            self._succeed(trial, max(self._scores, default=0), "it failed to report", orders)
        elif report.time >= self._goal.max_time:
            self._record(age, report.value, trial)
            self._done += 1
            self._leave(trial, f"it has trained for {self._goal.max_time} {self._goal.time_metric}", orders)
        elif age > self._ages[trial]:
            self._ages[trial] = age
            rank = self._record(age, report.value, trial)
            scores = self._scores[age]
            few = int(len(scores) * self._quantile)
            if few and rank >= len(scores) - few:
                units = f"{age * self._interval} {self._goal.time_metric}"
                standing = f"rank {rank + 1} of {len(scores)} on {self._goal.metric}"
                why = f"after {units}: {standing}, the worst {few} are replaced"
                self._leave(trial, why, orders)
                self._succeed(trial, age, why, orders)

    def _record(self, age: int, value: float, trial: int) -> int:
        scores = self._scores.setdefault(age, [])
        rank = bisect_right(scores, (value, trial))
        insort(scores, (value, trial))
        return rank

    def _leave(self, trial: int, why: str, orders: ActionQueue) -> None:
        del self._ages[trial]
        orders.stop(trial, why)

    def _succeed(self, trial: int, age: int, why: str, orders: ActionQueue) -> None:
        """Give the place of `trial` to a copy of one of the best of an age, or, without any, to a random point."""
        best = [other for _, other in self._scores.get(age, ())[: self._few(age)] if other != trial]
        if not best:
            self._create_random(f"in place of trial number {trial}: {why}; a random point", orders)
            return
        points = [self._points[other] for other in best]

        def draw(stream: RandomState) -> list[Any]:
            chosen = stream.below(len(best))
            return [chosen, self._change.of(points[chosen], stream)]

        chosen, point = orders.draw(draw)
        parent = best[int(chosen)]
        child = orders.create(f"a copy of trial number {parent} in place of {trial}: {why}", point, parent)
        self._ages[child], self._points[child] = age, point
        self._copied += 1

    def _few(self, age: int) -> int:
        return max(int(len(self._scores.get(age, ())) * self._quantile), 1)

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        if trial not in self._ages:
            return
        age = self._ages.pop(trial)
        if reason is None:
            self._done += 1
        elif reason is not ExitReason.USER_CANCELED and self._replaced < self._population:
            self._replaced += 1
            self._succeed(trial, age, "it failed", orders)
        else:
            self._done += 1

    def progress(self, _running: Mapping[int, float], _ended: int) -> float:
        ages = max(self._goal.max_time // self._interval, 1)
        return (self._done + sum(min(age / ages, 1.0) for age in self._ages.values())) / self._population

    def describe(self) -> str:
        ages = sorted(self._ages.values()) or [0]
        return (
            f"{len(self._ages)} of {self._population} members running, between {ages[0] * self._interval} and "
            f"{ages[-1] * self._interval} {self._goal.time_metric}; {self._copied} copied from better ones"
        )

    def state(self) -> dict[str, Any]:
        return {
            "ages": [list(pair) for pair in self._ages.items()],
            "points": [list(pair) for pair in self._points.items()],
            "scores": [[age, [list(pair) for pair in scores]] for age, scores in self._scores.items()],
            "counts": [self._done, self._replaced, self._copied],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._ages = {int(trial): int(age) for trial, age in state["ages"]}
        self._points = {int(trial): dict(point) for trial, point in state["points"]}
        self._scores = {
            int(age): [(float(value), int(trial)) for value, trial in scores] for age, scores in state["scores"]
        }
        self._done, self._replaced, self._copied = (int(count) for count in state["counts"])


class PbtSearcher(SearcherOptions):
    """The section of `pbt`."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {
        "max_time": "how long a member trains, in units of time_metric",
        "time_metric": "the validation metric that says how long a trial has trained, such as epochs",
    }

    name: Literal["pbt"]
    population: Annotated[Positive, Field(ge=2)] = 16
    max_time: Annotated[Steps, Field(ge=1)] | None = None
    time_metric: Name | None = None
    interval: Positive | None = None
    """How long a member trains between two comparisons, in units of `time_metric`; None: a tenth of `max_time`."""
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    resample_probability: float = Field(default=0.25, ge=0, le=1)
    factor: float = Field(default=1.2, gt=1)
    """A copied number is multiplied or divided by it."""

    def method(self, hparams: Mapping[str, Any]) -> Method:
        max_time = given(self.max_time, "max_time")
        goal = Goal(given(self.metric, "metric"), given(self.time_metric, "time_metric"), max_time)
        change = Perturbation(hparams, self.factor, self.resample_probability)
        return Pbt(goal, hparams, self.population, min(self._interval, max_time), self.quantile, change)

    @property
    def _interval(self) -> int:
        return self.interval or max(given(self.max_time, "max_time") // 10, 1)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return [(self.population, given(self.max_time, "max_time"))]
