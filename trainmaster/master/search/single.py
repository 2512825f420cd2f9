"""`single`: one trial, trained to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from trainmaster.config.searcher import SearcherOptions
from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.method import ActionQueue, Method, Preview, counts


class Single(Method):
    """Runs one trial. Rejected hyperparameters are not replaced: as a rule they are constants."""

    max_concurrent = 1

    def __init__(self) -> None:
        self._ended = False

    def begin(self, orders: ActionQueue) -> None:
        orders.create("the only trial")

    def ended(self, _trial: int, _reason: ExitReason | None, _orders: ActionQueue) -> None:
        self._ended = True

    def progress(self, running: Mapping[int, float], ended: int) -> float:
        return ended + sum(running.values())

    def describe(self) -> str:
        return counts(int(not self._ended), int(self._ended), 1)

    def state(self) -> dict[str, Any]:
        return {"ended": self._ended}

    def load(self, state: Mapping[str, Any]) -> None:
        self._ended = bool(state["ended"])


class SingleSearcher(SearcherOptions):
    """The section of `single`."""

    contract_version: ClassVar[int] = 2

    name: Literal["single"]

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        return Single()

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return [(1, None)]
