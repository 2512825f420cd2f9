"""`median_stopping`: random points, of which those are stopped that are worse than the median (Golovin et al. 2017,
"Google Vizier", section 3.2.2).

At each of `max_time / interval` ages a trial is stopped if the best value that it has reported is worse than the median
of the running averages of all trials that reached that age.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from trainmaster.config.shapes import Natural, Positive
from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.async_halving import Goal, TimedSearcher
from trainmaster.master.search.method import ActionQueue, Budget, Method, Preview, ValidationReport

AGES = 20  # at which trials are compared, where the configuration does not say


class MedianStopping(Method):
    """`least`: how many trials must have reached an age before one is stopped there."""

    def __init__(self, goal: Goal, interval: int, grace: int, least: int, max_trials: int, max_concurrent: int) -> None:
        self._goal, self._interval, self._grace, self._least = goal, interval, grace, least
        self._budget = Budget(max_trials)
        self.max_concurrent = min(max_concurrent or max_trials, max_trials)
        self._at: dict[int, list[float]] = {}  # running trials: ages compared, values so far, their sum, the best
        self._averages: dict[int, list[float]] = {}  # by age, in order
        self._ended = self._stopped = 0

    def begin(self, orders: ActionQueue) -> None:
        for _ in range(self.max_concurrent):
            self._create(orders)

    def _create(self, orders: ActionQueue) -> None:
        if self._budget.left:
            self._at[orders.create(f"{self._budget.spend()} random points")] = [0, 0, 0.0, 0.0]

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        if report.value is None:
            self._stop(trial, f"{report.complaint}: counted as the worst", orders)
            return
        compared, count, total, best = self._at[trial]
        best = min(best, report.value) if count else report.value
        count, total = count + 1, total + report.value
        age = min(int(report.time) // self._interval, self._goal.max_time // self._interval)
        self._at[trial] = [max(compared, age), count, total, best]
        if report.time >= self._goal.max_time:
            self._record(age, compared, total / count)
            self._stop(trial, f"it has trained for {self._goal.max_time} {self._goal.time_metric}", orders)
        elif age > compared:
            self._record(age, compared, total / count)
            if why := self._behind(age, best):
                self._stop(trial, why, orders)

    def _record(self, age: int, compared: float, average: float) -> None:
        if age > compared:
            insort(self._averages.setdefault(age, []), average)

    def _behind(self, age: int, best: float) -> str:
        averages = self._averages[age]
        units = age * self._interval
        if len(averages) < max(self._least, 2) or units < self._grace:
            return ""
        middle = len(averages) // 2
        median = averages[middle] if len(averages) % 2 else (averages[middle - 1] + averages[middle]) / 2
        if best <= median:
            return ""
        where = f"after {units} {self._goal.time_metric}"
        return (
            f"{where} its best {self._goal.metric} is worse than the median of the averages of {len(averages)} trials"
        )

    def _stop(self, trial: int, why: str, orders: ActionQueue) -> None:
        del self._at[trial]
        self._stopped += 1
        orders.stop(trial, why)
        self._create(orders)

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        invalid = reason is ExitReason.INVALID_HP and trial in self._at
        self._budget.invalid += invalid
        self._ended += not invalid
        if self._at.pop(trial, None) is not None:
            self._create(orders)

    def progress(self, running: Mapping[int, float], ended: int) -> float:
        return (ended + sum(running.values())) / self._budget.max_trials

    def describe(self) -> str:
        return f"{len(self._at)} running, {self._stopped} stopped, {self._ended} of {self._budget.max_trials} ended"

    def state(self) -> dict[str, Any]:
        return {
            "at": [[trial, *facts] for trial, facts in self._at.items()],
            "averages": [[age, *averages] for age, averages in self._averages.items()],
            "created": self._budget.created,
            "invalid": self._budget.invalid,
            "ended": self._ended,
            "stopped": self._stopped,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._at = {int(trial): [int(age), int(count), float(total), float(best)]
                    for trial, age, count, total, best in state["at"]}  # fmt: skip
        self._averages = {int(age): [float(value) for value in averages] for age, *averages in state["averages"]}
        self._budget.created, self._budget.invalid = int(state["created"]), int(state["invalid"])
        self._ended, self._stopped = int(state["ended"]), int(state["stopped"])


class MedianStoppingSearcher(TimedSearcher):
    """The section of `median_stopping`."""

    contract_version: ClassVar[int] = 2

    name: Literal["median_stopping"]
    interval: Positive | None = None
    """How long trials train between two comparisons, in units of `time_metric`; None: a twentieth of `max_time`."""
    grace: Natural = 0
    """No trial is stopped before it has trained that long."""
    least_trials: Positive = 5
    """No trial is stopped before so many have reached the same age."""

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        goal = self.goal
        interval = min(self.interval or max(goal.max_time // AGES, 1), goal.max_time)
        return MedianStopping(goal, interval, self.grace, self.least_trials, self.trials, self.max_concurrent_trials)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return [(self.trials, self.goal.max_time)]
