"""Promotion within a budget: slot-hours, a deadline, or both.

A trial that is promoted, and a new one, begin only what still fits (`spending`). The slot-hours that the trial in front
needs to its end are kept back from new trials until one has been trained to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.asha import Asha
from trainmaster.master.search.async_halving import WORST, Goal
from trainmaster.master.search.method import ActionQueue, ValidationReport
from trainmaster.master.search.spending import Forecast, Spending

MOST_TRIALS = 100_000  # where only slot-hours or a deadline limit them
ENOUGH = 3  # trials whose speed is known, before the user is told that the budget is too small


class BudgetedAsha(Asha):
    """`spending`: the budget; None: only `max_trials` limits the search, or else nothing."""

    def __init__(
        self,
        goal: Goal,
        rungs: int,
        divisor: float,
        max_trials: int | None,
        max_concurrent: int,
        spending: Spending | None,
    ) -> None:
        super().__init__(goal, rungs, divisor, max_trials or MOST_TRIALS, max_concurrent)
        self._most = max_trials
        self.spending = spending
        self.sees_spending = spending is not None
        self._told = spending is None  # that not one trial fits, or nothing to tell
        self._closed = False  # nothing fitted any more, and nothing ran

    def begin(self, orders: ActionQueue) -> None:
        if self.spending is not None:
            self.spending.began = self.spending.now = orders.now()
        super().begin(orders)

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        if (spending := self.spending) is None:
            return super().validated(trial, report, orders)
        spending.now, spending.spent = orders.now(), orders.spent()
        spending.report(trial, report.time, orders.spent(trial))
        super().validated(trial, report, orders)
        if spending.deadline is not None and spending.now >= spending.deadline:
            for late in [*self._at]:
                del self._at[late]
                spending.release(late)
                orders.stop(late, "the deadline is over")
        if not self._told and len(spending.costs) >= min(ENOUGH, self.max_concurrent):
            self._told = True
            if text := self.shortfall():
                orders.warn(text)
        return None

    def _arrive(self, trial: int, value: float, reached: int, orders: ActionQueue) -> None:
        super()._arrive(trial, value, reached, orders)
        if self.spending is not None:
            self.spending.release(trial)
            if trial in self._at:
                self._grant(trial)

    def _drop(self, trial: int) -> None:
        super()._drop(trial)
        if self.spending is not None:
            self.spending.release(trial)

    def _go_on(self, trial: int, orders: ActionQueue, why: str) -> None:
        super()._go_on(trial, orders, why)
        self._grant(trial)

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        if self.spending is not None:
            self.spending.now, self.spending.spent = orders.now(), orders.spent()
            self.spending.release(trial)
        super().ended(trial, reason, orders)

    def _grant(self, trial: int) -> None:
        if self.spending is not None:
            place = self._at[trial]
            self.spending.grant(trial, self._rungs[place].units - self._leg(place), self._rungs[place].units)

    def _leg(self, place: int) -> int:
        """Return the units from the rung before to this one."""
        return self._rungs[place].units - (self._rungs[place - 1].units if place else 0)

    def _fill(self, orders: ActionQueue) -> None:
        super()._fill(orders)
        if self._at or self._closed or self.spending is None:
            return
        # Nothing runs, and what would be promoted leaves too little for the trial in front: that one trains as far as
        # the rest reaches.
        found = (self._best_waiting(place, len(rung.trials)) for place, rung in self._from_top())
        front = next((trial for trial in found if trial is not None), None)
        if front is not None and not self.spending.excess(front, self._leg(self._waiting[front] + 1)):
            self._go_on(front, orders, "the best of {of}, and nothing else fits")
        else:
            self._closed = True

    def _excess(self, trial: int | None, rung: int) -> str:
        if self.spending is None:
            return ""
        if self._closed:
            return "the search is over"
        leg, reserve = self._leg(rung), self._reserve(rung)
        if trial is None:
            return self.spending.excess(None, leg, reserve=reserve, until=self._least())
        return self.spending.excess(trial, leg, reserve=reserve)

    def _reserve(self, rung: int) -> float:
        """Return the units that the trial in front still needs to its end when one trains for a rung; 0 when a trial is
        there."""
        if any(value < WORST for value in self._rungs[-1].values):
            return 0.0
        reached = max((place for place, each in enumerate(self._rungs) if each.trials), default=0)
        front = max(reached, rung, *self._at.values(), 0)  # the costs of legs under way are counted apart
        return float(self._rungs[-1].units - self._rungs[front].units)

    def _least(self) -> float:
        """Return the units that a new trial must be able to train before the deadline: all, where that leaves half of
        the time, or else those to the second rung."""
        assert self.spending is not None
        there = (self.spending.deadline or 0.0) - self.spending.began
        full = self._rungs[-1].units
        if (pace := self.spending.pace) is None or 2 * (full * pace + self.spending.expected_wait) <= there:
            return float(full)
        return float(self._rungs[min(1, len(self._rungs) - 1)].units)

    def shortfall(self) -> str:
        """Return why the budget is too small for one trial; empty where it is not, or not known yet."""
        return "" if self.spending is None else self.spending.shortfall(self._goal.max_time, self._goal.time_metric)

    def forecast(self) -> Forecast:
        """Estimate how the search ends, with a budget that `spending` has."""
        if self.spending is None:
            return Forecast()
        shares = [self._divisor**-place for place in range(len(self._rungs))]  # of the trials, on each rung
        steps = [
            rung.units - below for rung, below in zip(self._rungs, [0, *(r.units for r in self._rungs)], strict=False)
        ]
        units = sum(share * step for share, step in zip(shares, steps, strict=True))
        return self.spending.forecast(self._budget.created, self._most, self.max_concurrent, units, sum(shares))

    def fraction(self) -> float:
        used = self.spending.fraction() if self.spending is not None else None
        if used is None:
            return super().fraction()
        return used if self._most is None else max(used, super().fraction())

    def describe(self) -> str:
        if self.spending is None:
            return super().describe()
        return f"{super().describe()}; {self.spending.describe()}"

    def _create(self, orders: ActionQueue) -> None:
        before = {*self._at}
        super()._create(orders)
        for trial in self._at.keys() - before:
            self._grant(trial)

    def state(self) -> dict[str, Any]:
        if self.spending is None:
            return super().state()
        return {**super().state(), "spending": self.spending.state(), "told": self._told, "closed": self._closed}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        if self.spending is not None:
            self.spending.load(state["spending"])
            self._told, self._closed = bool(state["told"]), bool(state["closed"])
