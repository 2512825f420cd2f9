"""Points of the hyperparameter space: random samples and grids.

A hyperparameter is written as in the experiment configuration: a mapping with `type` is typed, one without is
a nested group, anything else is a constant. Names are read in sorted order at every depth, so that one seed
gives the same points whatever the order of the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any

from trainmaster.master.search.actions import SearchError
from trainmaster.master.search.mersenne import RandomState


def sample(space: Mapping[str, Any], stream: RandomState) -> dict[str, Any]:
    """One random point of `space`. Draws from `stream` once per name, in sorted order, depth first; what a condition
    excludes is left out afterwards."""
    return reduced(space, {name: _sample(space[name], name, stream) for name in sorted(space)})


def reduced(space: Mapping[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    """Return `point` without the hyperparameters whose conditions (`when`) it does not meet."""
    conditions = dict(_conditions(space, ()))
    while conditions:
        unmet = [path for path, when in conditions.items() if not _meets(point, when)]
        if not unmet:
            break
        for path in unmet:
            del conditions[path]
            group = point
            for name in path[:-1]:
                group = group.get(name, {})
            group.pop(path[-1], None)
    return point


def _conditions(space: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for name, value in space.items():
        if isinstance(value, Mapping) and "type" not in value:
            yield from _conditions(value, (*path, name))
        elif isinstance(value, Mapping) and value.get("when"):
            yield (*path, name), value["when"]


def _meets(point: Mapping[str, Any], when: Mapping[str, Any]) -> bool:
    for dotted, wanted in when.items():
        value: Any = point
        for name in dotted.split("."):
            value = value.get(name, _NOTHING) if isinstance(value, Mapping) else _NOTHING
        if value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def _sample(value: Any, name: str, stream: RandomState) -> Any:
    kind = kind_of(value, name)
    try:
        match kind:
            case "group":
                return {key: _sample(value[key], f"{name}.{key}", stream) for key in sorted(value)}
            case "literal":
                return copy.deepcopy(value)
            case "const":
                return copy.deepcopy(value["val"])
            case "int":
                low, high = index(value["minval"]), index(value["maxval"])
                step = index(value.get("step") or 1)
                return low + step * stream.below((high - low) // step + 1)
            case "double" if value.get("step"):
                return stepped(value, stream.below(steps(value)))
            case "double":
                return stream.uniform(float(value["minval"]), float(value["maxval"]))
            case "log":
                exponent = stream.uniform(float(value["minval"]), float(value["maxval"]))
                return _power(value["base"], exponent, name)
            case _:
                return copy.deepcopy(value["vals"][stream.below(len(value["vals"]))])
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, error) from None


def constants(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `space` that has one value only, with those values."""
    fixed: dict[str, Any] = {}
    for name, value in space.items():
        match kind_of(value, name):
            case "group":
                fixed[name] = constants(value)
            case "literal":
                fixed[name] = copy.deepcopy(value)
            case "const":
                fixed[name] = copy.deepcopy(value["val"])
    return fixed


def variables(space: Mapping[str, Any]) -> list[str]:
    """Return the names at the top of `space` below which something is to be chosen."""
    return [name for name, value in space.items() if _varies(value, name)]


def _varies(value: Any, name: str) -> bool:
    kind = kind_of(value, name)
    return any(_varies(each, key) for key, each in value.items()) if kind == "group" else kind not in _FIXED


def overlaid(fixed: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fixed` with the values of `point`, group by group."""
    whole = copy.deepcopy(dict(fixed))
    for name, value in point.items():
        below = whole.get(name)
        nested = isinstance(below, dict) and isinstance(value, Mapping)
        whole[name] = overlaid(below or {}, value) if nested else copy.deepcopy(value)
    return whole


def steps(value: Mapping[str, Any]) -> int:
    """Return how many values a range with a `step` has."""
    return int((value["maxval"] - value["minval"]) / value["step"] + 1e-9) + 1


def stepped(value: Mapping[str, Any], number: int) -> Any:
    """Return a value of a range with a `step`, from 0."""
    place = value["minval"] + number * value["step"]
    return place if value["type"] == "int" else float(f"{place:.12g}")


class Grid:
    """The cartesian product of all axes, the last name (in sorted order) changing fastest.

    Points are computed when they are asked for, so that a large grid costs nothing."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._space = space
        self._axes: list[list[Any]] = []
        self._collect(space, "")
        self.size = math.prod(len(axis) for axis in self._axes)
        """Number of points; 1 for a space without names."""

    def point(self, number: int) -> dict[str, Any]:
        """Return the point with that number, 0 .. size - 1."""
        values = []
        for axis in reversed(self._axes):
            number, place = divmod(number, len(axis))
            values.append(copy.deepcopy(axis[place]))
        return self._fill(self._space, values)

    def _collect(self, space: Mapping[str, Any], prefix: str) -> None:
        for key in sorted(space):
            name = f"{prefix}{key}"
            if kind_of(space[key], name) == "group":
                self._collect(space[key], f"{name}.")
            else:
                self._axes.append(grid_axis(space[key], name))

    def _fill(self, space: Mapping[str, Any], values: list[Any]) -> dict[str, Any]:
        """Take the values (a stack, the first axis on top) in the order in which `_collect` met the axes."""
        return {
            key: self._fill(space[key], values) if kind_of(space[key], key) == "group" else values.pop()
            for key in sorted(space)
        }


def axis_lengths(space: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """How many values a grid takes for each hyperparameter (its full name), without making any of them."""
    for key in sorted(space):
        value, name = space[key], f"{prefix}{key}"
        kind = kind_of(value, name)
        try:
            match kind:
                case "group":
                    yield from axis_lengths(value, f"{name}.")
                case "literal" | "const":
                    yield name, 1
                case "categorical":
                    yield name, len(value["vals"])
                case "int" | "double" if value.get("step") and not value.get("count"):
                    yield name, steps(value)
                case "int":
                    yield name, min(_count(value, name), index(value["maxval"]) - index(value["minval"]) + 1)
                case _:
                    yield name, _count(value, name)
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(name, error) from None


def grid_axis(value: Any, name: str = "hyperparameter") -> list[Any]:
    """All values that a grid takes for one hyperparameter, in order."""
    kind = kind_of(value, name)
    try:
        match kind:
            case "literal":
                return [value]
            case "const":
                return [value["val"]]
            case "categorical":
                return _not_empty(value["vals"])
            case "int" | "double" if value.get("step") and not value.get("count"):
                return [stepped(value, number) for number in range(steps(value))]
            case "int":
                low, high = index(value["minval"]), index(value["maxval"])
                return _int_axis(low, high, min(_count(value, name), high - low + 1))
            case _:
                points = _linspace(float(value["minval"]), float(value["maxval"]), _count(value, name))
                return [_power(value["base"], x, name) for x in points] if kind == "log" else points
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, error) from None


def _int_axis(low: int, high: int, count: int) -> list[int]:
    """`count` integers from `low` to `high`, rounded half away from zero; the middle when `count` is 1."""
    if count == 1:
        return [_round_ratio(low + high, 2)]
    return [_round_ratio(low * (count - 1) + i * (high - low), count - 1) for i in range(count)]


def _round_ratio(numerator: int, denominator: int) -> int:
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size


def _linspace(low: float, high: float, count: int) -> list[float]:
    if count == 1:
        return [(low + high) / 2]
    step = (high - low) / (count - 1)
    return [*(low + i * step for i in range(count - 1)), high]


def _count(value: Mapping[str, Any], name: str) -> int:
    count = value.get("count")
    if not isinstance(count, int) or count < 1:
        raise SearchError(f"hyperparameter {name}: a grid search needs a count of at least 1; add `count: N`")
    return count


def _power(base: float, exponent: float, name: str) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise SearchError(
            f"hyperparameter {name}: {base} ** {exponent} is too large for a number; minval and maxval are "
            f"exponents, not values"
        ) from None


def _not_empty(values: Sequence[Any]) -> list[Any]:
    if not values:
        raise ValueError("vals is empty")
    return list(values)


_NOTHING = object()
_FIXED = ("literal", "const")
_TYPED = ("const", "int", "double", "log", "categorical")


def kind_of(value: Any, name: str) -> str:
    """Return `literal`, `group`, or the type of a hyperparameter. Raises SearchError."""
    if not isinstance(value, Mapping):
        return "literal"
    if "type" not in value:
        return "group"
    kind = value["type"]
    if kind not in _TYPED:
        raise SearchError(f"hyperparameter {name}: unknown type {kind!r}; types are {', '.join(_TYPED)}")
    return str(kind)


def _unreadable(name: str, error: Exception) -> SearchError:
    if isinstance(error, SearchError):
        return error
    what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return SearchError(f"hyperparameter {name} cannot be read: {what}")
