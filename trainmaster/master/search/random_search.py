"""`random`: a fixed number of points, each trained to its end: independent random ones, or those of a scrambled Sobol
sequence, which fill the space more evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Positive
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.axes import Axes
from trainmaster.master.search.combinations import ForbiddenCombinations
from trainmaster.master.search.hyperparameters import overlaid
from trainmaster.master.search.method import ActionQueue, Budget, Method, Preview, counts, given
from trainmaster.master.search.sobol import MOST_DIMENSIONS, sobol_point


class RandomSearch(Method):
    """`max_trials` random points, at most `max_concurrent` at a time (0: all at once)."""

    def __init__(self, max_trials: int, max_concurrent: int) -> None:
        self.max_concurrent = min(max_concurrent or max_trials, max_trials)
        self._budget = Budget(max_trials)
        self._running = 0

    def begin(self, orders: ActionQueue) -> None:
        for _ in range(self.max_concurrent):
            self._create(orders)

    def ended(self, _trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        self._running -= 1
        if reason is ExitReason.INVALID_HP:
            self._budget.invalid += 1
        if self._budget.left:
            self._create(orders)

    def _create(self, orders: ActionQueue) -> None:
        self._running += 1
        self._create_point(orders, self._budget.spend())

    def _create_point(self, orders: ActionQueue, place: str) -> None:
        orders.create(f"{place} random points")

    def progress(self, running: Mapping[int, float], ended: int) -> float:
        return (ended + sum(running.values())) / self._budget.max_trials

    def describe(self) -> str:
        ended = self._budget.created - self._running - self._budget.invalid
        return counts(self._running, ended, self._budget.max_trials)

    def state(self) -> dict[str, Any]:
        return {
            "created": self._budget.created,
            "invalid": self._budget.invalid,
            "running": self._running,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._budget.created = int(state["created"])
        self._budget.invalid = int(state["invalid"])
        self._running = int(state["running"])


class SobolSearch(RandomSearch):
    """The same with points of a scrambled Sobol sequence, of which forbidden ones are left out."""

    def __init__(
        self,
        max_trials: int,
        max_concurrent: int,
        space: Mapping[str, Any],
        first: Sequence[Mapping[str, Any]],
        forbidden: Sequence[Mapping[str, Any]],
    ) -> None:
        super().__init__(max_trials, max_concurrent)
        self._axes, self._first, self._forbidden = Axes(space), first, ForbiddenCombinations(forbidden)
        self._seeds: list[int] = []  # one an axis
        self._number = 0  # of the next point

    def begin(self, orders: ActionQueue) -> None:
        self._seeds = orders.draw(lambda stream: [stream.bits32() for _ in self._axes.all])
        super().begin(orders)

    def _create_point(self, orders: ActionQueue, place: str) -> None:
        number = self._budget.created - 1
        point = self._forbidden.until_allowed(self._next)
        if number < len(self._first):
            point = overlaid(point, self._first[number])
        orders.create(f"{place} Sobol points", point)

    def _next(self) -> dict[str, Any]:
        self._number += 1
        unit = sobol_point(self._number - 1, self._seeds)
        pairs = zip(self._axes.all, unit, strict=True)
        return self._axes.point([x if axis.categories is None else x * len(axis.categories) for axis, x in pairs])

    def state(self) -> dict[str, Any]:
        return {**super().state(), "seeds": self._seeds, "number": self._number}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._seeds, self._number = list(state["seeds"]), int(state["number"])


class RandomSearcher(ManyTrials):
    """The section of `random`."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {"max_trials": "how many trials there are in all"}

    name: Literal["random"]
    max_trials: Positive | None = None
    sampling: Literal["random", "sobol"] = Field(default="random", exclude_if=lambda value: value == "random")

    def method(self, hparams: Mapping[str, Any]) -> Method:
        trials = given(self.max_trials, "max_trials")
        if self.sampling == "random":
            return RandomSearch(trials, self.max_concurrent_trials)
        if len(Axes(hparams).all) > MOST_DIMENSIONS:
            raise SearchError(f"searcher.sampling: sobol has {MOST_DIMENSIONS} dimensions at most; use random")
        return SobolSearch(trials, self.max_concurrent_trials, hparams, self.first_points or (), self.forbidden or ())

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return [(given(self.max_trials, "max_trials"), None)]
