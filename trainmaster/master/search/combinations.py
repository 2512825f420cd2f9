"""Combinations of hyperparameters that are never tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainmaster.master.search.actions import SearchError

TRIES = 1000  # until an allowed point must have been found


class ForbiddenCombinations:
    """Each combination: by dotted name a value, a list of values, or a range with `min` and `max`, both included."""

    def __init__(self, combinations: Sequence[Mapping[str, Any]]) -> None:
        self._combinations = combinations

    def allows(self, point: Mapping[str, Any]) -> bool:
        """Whether a point is none of the combinations."""
        return not any(
            all(_matches(_value(point, name), wanted) for name, wanted in each.items()) for each in self._combinations
        )

    def until_allowed(self, draw: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Draw points until one is allowed. Raises SearchError."""
        for _ in range(TRIES):
            point = draw()
            if self.allows(point):
                return point
        raise SearchError(f"searcher.forbidden leaves too little: none of {TRIES} points that were drawn is allowed")


def _value(point: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        point = point.get(name, _NOTHING) if isinstance(point, Mapping) else _NOTHING
    return point


_NOTHING = object()


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = wanted.get("min"), wanted.get("max")
        return (low is None or value >= low) and (high is None or value <= high)
    return value in (wanted if isinstance(wanted, list) else [wanted])
