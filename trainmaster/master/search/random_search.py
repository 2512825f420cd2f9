"""`random`: a fixed number of independent random points, each trained to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Positive
from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.method import ActionQueue, Budget, Method, Preview, counts, given


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
        orders.create(f"{self._budget.spend()} random points")

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


class RandomSearcher(ManyTrials):
    """The section of `random`."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {"max_trials": "how many trials there are in all"}

    name: Literal["random"]
    max_trials: Positive | None = None

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        return RandomSearch(given(self.max_trials, "max_trials"), self.max_concurrent_trials)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return [(given(self.max_trials, "max_trials"), None)]
