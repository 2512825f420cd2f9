"""`asha`: asynchronous successive halving (ASHA, Li et al. 2018, arXiv:1810.05934), by promotion.

A trial that reaches a rung is paused there: it saves its work and gives its slots back. A free place goes to the best
paused trial that is among the best 1/divisor of its rung, the highest rung first, and else to a new random point. So
nothing is stopped too early: a trial that fell behind continues later, when others turn out to be worse. At the top
rung a trial is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from trainmaster.config.shapes import Positive
from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.async_halving import WORST, AsyncHalving, Goal, HalvingSearcher, Rung
from trainmaster.master.search.method import ActionQueue, Method, Preview, RungRanking, ValidationReport

MOST_RUNGS = 6  # that the search chooses by itself


class Asha(AsyncHalving):
    """One bracket whose trials wait on their rungs."""

    pauses: ClassVar[bool] = True

    def __init__(self, goal: Goal, rungs: int, divisor: float, max_trials: int, max_concurrent: int) -> None:
        super().__init__(goal, rungs, divisor, max_trials, max_concurrent)
        self._waiting: dict[int, int] = {}  # paused trials -> the rung that they have reached

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        if report.value is None:
            self._drop(trial)
            orders.stop(trial, f"{report.complaint}: counted as the worst")
        elif (reached := self._reached(trial, report.time)) is not None:
            self._arrive(trial, report.value, reached, orders)
        self._fill(orders)

    def _reached(self, trial: int, time: float) -> int | None:
        """Return the highest rung that a trial has reached since the last; None where it has reached no further."""
        here = self._at[trial]
        reached = [place for place in range(here, len(self._rungs)) if time >= self._rungs[place].units]
        return reached[-1] if reached else None

    def _arrive(self, trial: int, value: float, reached: int, orders: ActionQueue) -> None:
        for place in range(self._at[trial], reached + 1):
            rank = self._rungs[place].insert(trial, value)
            self._arrived.append(trial)
        rung = self._rungs[reached]
        where = (
            f"rung {reached + 1} ({rung.units} {self._goal.time_metric}): "
            f"rank {rank + 1} of {len(rung.values)} on {self._goal.metric}"
        )
        del self._at[trial]
        if reached == len(self._rungs) - 1:
            rung.stopped += 1
            orders.stop(trial, f"{where}, the top rung")
        elif rank < self._keep(rung) and not (excess := self._excess(trial, reached + 1)):
            self._at[trial] = reached + 1
        else:
            self._waiting[trial] = reached
            kept = f"the best {self._keep(rung)} go on"
            orders.pause(trial, f"{where}, {kept if rank >= self._keep(rung) else excess}")

    def _excess(self, _trial: int | None, _rung: int) -> str:
        """Return why a trial (None: a new one) may not train for a rung; empty: it may."""
        return ""

    def _keep(self, rung: Rung) -> int:
        return int(len(rung.values) / self._divisor)

    def _fill(self, orders: ActionQueue) -> None:
        while len(self._at) < self.max_concurrent:
            if (trial := self._next()) is not None:
                if self._excess(trial, self._waiting[trial] + 1):
                    return
                self._go_on(trial, orders, "among the best {keep} of {of}")
            elif self._budget.left and not self._excess(None, 0):
                self._create(orders)
            elif not self._at and (trial := self._last_hope()) is not None:
                if self._excess(trial, self._waiting[trial] + 1):
                    return
                self._go_on(trial, orders, "the best of {of}, and there are no further trials")
            else:
                return

    def _next(self) -> int | None:
        """Return the paused trial that may continue: the best of the highest rung that has one."""
        found = (self._best_waiting(place, self._keep(rung)) for place, rung in self._from_top())
        return next((trial for trial in found if trial is not None), None)

    def _last_hope(self) -> int | None:
        """Return the paused trial that has come furthest, until one has reached the top."""
        if any(value < WORST for value in self._rungs[-1].values):
            return None
        found = (self._best_waiting(place, len(rung.trials)) for place, rung in self._from_top())
        return next((trial for trial in found if trial is not None), None)

    def _from_top(self) -> Iterator[tuple[int, Rung]]:
        """Yield the rungs on which trials wait."""
        return reversed([*enumerate(self._rungs[:-1])])

    def _best_waiting(self, place: int, among: int) -> int | None:
        trials = self._rungs[place].trials[:among]
        return next((trial for trial in trials if self._waiting.get(trial) == place), None)

    def _go_on(self, trial: int, orders: ActionQueue, why: str) -> None:
        place = self._waiting.pop(trial)
        rung = self._rungs[place]
        self._at[trial] = place + 1
        words = why.format(keep=self._keep(rung), of=len(rung.values))
        orders.resume(trial, f"rung {place + 1} ({rung.units} {self._goal.time_metric}): {words}")

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        invalid = reason is ExitReason.INVALID_HP and (trial in self._at or trial in self._waiting)
        if invalid:
            self._at.pop(trial, None)
            for rung in self._rungs:
                rung.remove(trial)
            self._arrived = [other for other in self._arrived if other != trial]
            self._budget.invalid += 1
        else:
            self._ended += 1
            if trial in self._at and reason is not None:
                self._drop(trial)
            self._at.pop(trial, None)  # it trained for less than max_time: its place is free, its rank stands
        self._waiting.pop(trial, None)
        self._fill(orders)

    def describe(self) -> str:
        training, waiting = ([0] * len(self._rungs) for _ in range(2))
        for place in self._at.values():
            training[place] += 1
        for place in self._waiting.values():
            waiting[place] += 1
        return "; ".join(
            f"rung {i + 1} of {len(self._rungs)} ({rung.units} {self._goal.time_metric}): "
            f"{training[i]} running, {waiting[i]} paused"
            for i, rung in enumerate(self._rungs)
        )

    def _ranking(self, place: int) -> RungRanking:
        ranking = super()._ranking(place)
        paused = sum(here == place for here in self._waiting.values())
        return RungRanking(ranking.units, ranking.trials, ranking.values, ranking.cut, ranking.stopped, paused)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "waiting": [list(pair) for pair in self._waiting.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._waiting = {trial: place for trial, place in state["waiting"]}


class AshaSearcher(HalvingSearcher):
    """The section of `asha`."""

    name: Literal["asha"]
    num_rungs: Positive | None = None
    """None: as many as `max_time` can be divided into, at most 6."""

    contract_version: ClassVar[int] = 2

    @property
    def rungs(self) -> int:
        """How many rungs there are."""
        if self.num_rungs is not None:
            return self.num_rungs
        return next((n for n in range(1, MOST_RUNGS) if self.goal.max_time < self.divisor**n), MOST_RUNGS)

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        return Asha(self.goal, self.rungs, self.divisor, self.trials, self.max_concurrent_trials)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return self.preview_of([(self.rungs, self.trials)])
