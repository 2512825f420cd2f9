"""From the `searcher` section of an experiment's configuration to the method it names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .actions import SearchError
from .adaptive_asha import AdaptiveAsha, Bracket, make_brackets
from .async_halving import AsyncHalving, Goal
from .grid_search import GridSearch
from .method import Method
from .random_search import RandomSearch
from .single import Single

_GONE = {
    "custom": "create experiments with the searcher single from your own code",
    "adaptive": "use adaptive_asha",
    "adaptive_simple": "use adaptive_asha",
    "sync_halving": "use async_halving",
}
DEFAULT_CONCURRENT = 16
DEFAULT_DIVISOR = 4.0
DEFAULT_RUNGS = 5


class Section:
    """Typed reading of the searcher section; a null counts as absent."""

    def __init__(self, searcher: Mapping[str, Any]) -> None:
        self._searcher = searcher
        self.name = self.text("name")

    def text(self, key: str) -> str:
        value = self._searcher.get(key)
        if not isinstance(value, str) or not value:
            raise SearchError(f"searcher.{key} must be a text; the searcher section has {value!r}")
        return value

    def whole(self, key: str, default: int | None = None, *, least: int) -> int:
        value = self._searcher.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SearchError(
                f"searcher.{key} must be a whole number of at least {least} for {self.name}; it is {value!r}"
            )
        return value

    @property
    def divisor(self) -> float:
        value = self._searcher.get("divisor")
        value = DEFAULT_DIVISOR if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < math.inf:
            raise SearchError(f"searcher.divisor must be a number above 1; it is {value!r}")
        return float(value)

    @property
    def max_concurrent(self) -> int:
        return self.whole("max_concurrent_trials", DEFAULT_CONCURRENT, least=0)

    @property
    def max_trials(self) -> int:
        return self.whole("max_trials", least=1)

    @property
    def goal(self) -> Goal:
        return Goal(self.text("metric"), self.text("time_metric"), self.whole("max_time", least=1))

    @property
    def brackets(self) -> list[Bracket]:
        mode = self._searcher.get("mode") or "standard"
        if mode not in ("aggressive", "standard", "conservative"):
            raise SearchError(f"searcher.mode must be aggressive, standard or conservative; it is {mode!r}")
        rungs = self._searcher.get("bracket_rungs") or []
        if not all(isinstance(r, int) and r >= 1 for r in rungs):
            raise SearchError(f"searcher.bracket_rungs must hold whole numbers of at least 1; it is {rungs!r}")
        return make_brackets(
            mode,
            self.goal.max_time,
            self.divisor,
            self.max_trials,
            self.max_concurrent,
            self.whole("max_rungs", DEFAULT_RUNGS, least=1),
            rungs,
        )


def make_method(searcher: Mapping[str, Any], hparams: Mapping[str, Any]) -> Method:
    """The method that `searcher` names, not yet begun. Raises SearchError."""
    section = Section(searcher)
    match section.name:
        case "single":
            return Single()
        case "random":
            return RandomSearch(section.max_trials, section.max_concurrent)
        case "grid":
            return GridSearch(hparams, section.max_concurrent)
        case "async_halving":
            rungs = section.whole("num_rungs", least=1)
            return AsyncHalving(section.goal, rungs, section.divisor, section.max_trials, section.max_concurrent)
        case "adaptive_asha":
            return AdaptiveAsha(section.goal, section.divisor, section.brackets, section.max_concurrent)
        case gone if gone in _GONE:
            raise SearchError(f"the searcher {gone} is no longer run: {_GONE[gone]}")
        case unknown:
            raise SearchError(
                f"there is no searcher {unknown!r}; use single, random, grid, async_halving or adaptive_asha"
            )
