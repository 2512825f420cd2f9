"""Hyperparameters as axes: each value of a point as a number between 0 and 1, or as the place of a category."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.master.search.hyperparameters import constants, kind_of, reduced, stepped, steps

MOST_STEPS = 10_000  # of a range, that are listed
Coordinates = Sequence[float]
"""One value an axis; of a category its place in the list."""


@dataclass(frozen=True)
class Axis:
    """One hyperparameter. `path`: its name, below those of its groups. `steps`: the values of a list of numbers, in
    order, which are neighbours of each other; `categories`: of any other list. Both are None for a range."""

    path: tuple[str, ...]
    value: Mapping[str, Any]
    kind: str
    steps: Sequence[Any] | None = None
    categories: Sequence[Any] | None = None

    def of(self, value: Any) -> float:
        """Return where a value lies."""
        if self.steps is not None:
            return (next((at for at, each in enumerate(self.steps) if each == value), 0) + 0.5) / len(self.steps)
        if self.categories is not None:
            return float(next((at for at, each in enumerate(self.categories) if each == value), 0))
        low, high = float(self.value["minval"]), float(self.value["maxval"])
        if self.kind == "int":
            return (float(value) - low + 0.5) / (high - low + 1)
        if self.kind == "log" and self.value["base"] == 1:
            return 0.5  # every power of 1 is the same
        number = math.log(value, self.value["base"]) if self.kind == "log" else float(value)
        return min(max((number - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def holds(self, value: Any) -> bool:
        """Whether a value, of another space perhaps, lies on this axis."""
        if self.steps is not None or self.categories is not None:
            return any(each == value for each in self.steps or self.categories or ())
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = float(self.value["minval"]), float(self.value["maxval"])
        if self.kind == "log":
            low, high = sorted((math.pow(self.value["base"], low), math.pow(self.value["base"], high)))
        return low <= value <= high

    def at(self, place: float) -> Any:
        """Return the value that lies at `place`."""
        if self.steps is not None:
            return self.steps[min(int(place * len(self.steps)), len(self.steps) - 1)]
        if self.categories is not None:
            return self.categories[int(place)]
        low, high = self.value["minval"], self.value["maxval"]
        if self.value.get("step"):  # more of them than are listed
            return stepped(self.value, min(int(place * steps(self.value)), steps(self.value) - 1))
        if self.kind == "int":
            return low + min(int(place * (high - low + 1)), high - low)
        number = float(low) + place * (float(high) - float(low))
        return math.pow(self.value["base"], number) if self.kind == "log" else number


class Axes:
    """All that is to be chosen in a space."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._space, self._fixed = space, constants(space)
        self.all = list(_axes(space, ()))
        self.priors = {
            at: axis.of(axis.value["prior"]) for at, axis in enumerate(self.all) if axis.value.get("prior") is not None
        }
        """Where the user would look, by axis."""

    def moved(self, coordinates: Coordinates, point: Mapping[str, Any]) -> list[float]:
        """Return coordinates with those of the values that `point` gives."""
        given = [_get(point, axis.path) for axis in self.all]
        pairs = zip(self.all, coordinates, given, strict=True)
        return [place if value is None else axis.of(value) for axis, place, value in pairs]

    def placed(self, point: Mapping[str, Any]) -> list[float] | None:
        """Return the coordinates of a point of another space; None where it does not lie in this one."""
        place = []
        for axis in self.all:
            value = _get(point, axis.path)
            if value is None and axis.value.get("when"):
                place.append(0.5 if axis.categories is None else 0.0)
            elif value is None or not axis.holds(value):
                return None
            else:
                place.append(axis.of(value))
        return place

    def key(self, coordinates: Coordinates) -> tuple[Any, ...]:
        """Return the values at these coordinates, to compare points by."""
        return tuple(repr(axis.at(place)) for axis, place in zip(self.all, coordinates, strict=True))

    def point(self, coordinates: Coordinates) -> dict[str, Any]:
        """Return the point at these coordinates, with the constants of the space."""
        point: dict[str, Any] = _copied(self._fixed)
        for axis, place in zip(self.all, coordinates, strict=True):
            group = point
            for name in axis.path[:-1]:
                group = group.setdefault(name, {})
            group[axis.path[-1]] = axis.at(place)
        return reduced(self._space, point)


def _axes(space: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Axis]:
    for name in sorted(space):
        value, here = space[name], (*path, name)
        kind = kind_of(value, ".".join(here))
        if kind == "group":
            yield from _axes(value, here)
        elif kind == "categorical":
            values = list(value["vals"])
            numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
            yield Axis(here, value, kind, sorted(values)) if numbers else Axis(here, value, kind, categories=values)
        elif kind in ("int", "double") and value.get("step") and steps(value) <= MOST_STEPS:
            yield Axis(here, value, kind, [stepped(value, number) for number in range(steps(value))])
        elif kind not in ("literal", "const"):
            yield Axis(here, value, kind)


def _get(point: Any, path: Sequence[str]) -> Any:
    for name in path:
        point = point.get(name) if isinstance(point, Mapping) else None
    return point


def _copied(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in group.items()}
