"""`grid`: one trial for every point of a grid, each trained to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from trainmaster.config.searcher import ManyTrials
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.combinations import ForbiddenCombinations
from trainmaster.master.search.hyperparameters import Grid
from trainmaster.master.search.method import ActionQueue, Method, Preview, counts


class GridSearch(Method):
    """All points of the grid over `space`, the last one first (as Determined orders them), at most
    `max_concurrent` at a time (0: all at once). A rejected point is not replaced. Raises SearchError when every point
    is forbidden."""

    def __init__(
        self, space: Mapping[str, Any], max_concurrent: int, forbidden: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._grid = Grid(space)
        allows = ForbiddenCombinations(forbidden).allows
        every: Sequence[int] = range(self._grid.size)
        self._numbers = [number for number in every if allows(self._grid.point(number))] if forbidden else every
        self.size = len(self._numbers)
        if not self.size:
            raise SearchError("searcher.forbidden excludes all points of the grid")
        self.max_concurrent = min(max_concurrent or self.size, self.size)
        self._created = 0
        self._running = 0

    def begin(self, orders: ActionQueue) -> None:
        for _ in range(self.max_concurrent):
            self._create(orders)

    def ended(self, _trial: int, _reason: ExitReason | None, orders: ActionQueue) -> None:
        self._running -= 1
        if self._created < self.size:
            self._create(orders)

    def _create(self, orders: ActionQueue) -> None:
        point = self._grid.point(self._numbers[self.size - 1 - self._created])
        self._created += 1
        self._running += 1
        orders.create(f"grid point {self._created} of {self.size}", point)

    def progress(self, running: Mapping[int, float], _ended: int) -> float:
        return (self._created - self._running + sum(running.values())) / self.size

    def describe(self) -> str:
        return counts(self._running, self._created - self._running, self.size)

    def state(self) -> dict[str, Any]:
        return {"created": self._created, "running": self._running}

    def load(self, state: Mapping[str, Any]) -> None:
        self._created = int(state["created"])
        self._running = int(state["running"])


class GridSearcher(ManyTrials):
    """The section of `grid`."""

    contract_version: ClassVar[int] = 2
    takes_grid: ClassVar[bool] = True
    refused: ClassVar[Mapping[str, str]] = {"first_points": "a grid tries all its points; remove this key"}

    name: Literal["grid"]

    def method(self, hparams: Mapping[str, Any]) -> Method:
        return GridSearch(hparams, self.max_concurrent_trials, self.forbidden or ())

    def preview(self, hparams: Mapping[str, Any]) -> Preview:
        return [(GridSearch(hparams, 1, self.forbidden or ()).size, None)]
