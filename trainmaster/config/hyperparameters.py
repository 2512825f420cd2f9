"""Models the `hyperparameters` section: typed values, nested groups, and literals as constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, RootModel, Tag, model_validator

from trainmaster.config.messages import Path, in_words
from trainmaster.config.shapes import Positive, Section, Whole, pick, tag_of, wrong

TYPES = ("const", "int", "double", "log", "categorical")
MAX_RANGE = 2**63


class Const(Section):
    """A fixed value of any JSON kind."""

    nullable: ClassVar[frozenset[str]] = frozenset({"val"})
    type: Literal["const"]
    val: Any


def _absent(value: Any) -> bool:
    return value is None


class Varying(Section):
    """A hyperparameter that is chosen. `when`: dotted names of others, each with the value, or the list of values, with
    which this one exists; it is left out of other points. `prior`: the value that the user would try."""

    when: dict[str, Any] | None = Field(default=None, exclude_if=_absent)
    prior: Any = Field(default=None, exclude_if=_absent)

    def _check_prior(self, low: float, high: float) -> None:
        prior = self.prior
        if prior is None:
            return
        if isinstance(prior, bool) or not isinstance(prior, int | float):
            raise wrong(f"a number is wanted, found {in_words(prior)}", "prior")
        if not low <= prior <= high:
            raise wrong(f"must lie between {low:g} and {high:g}, found {prior:g}", "prior")


class Int(Varying):
    """An integer from minval to maxval, both included. `step`: only every so many."""

    type: Literal["int"]
    minval: Whole
    maxval: Whole
    step: Positive | None = Field(default=None, exclude_if=_absent)

    count: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.minval, self.maxval)
        if self.maxval - self.minval >= MAX_RANGE:
            raise wrong("the range from minval to maxval is too wide to draw from")
        _check_step(self.minval, self.maxval, self.step)
        self._check_prior(self.minval, self.maxval)
        return self


class Double(Varying):
    """A number between minval and maxval. `step`: only minval and what lies so far from it, once or several times."""

    type: Literal["double"]
    minval: float
    maxval: float
    step: float | None = Field(default=None, gt=0, exclude_if=_absent)
    count: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.minval, self.maxval)
        _check_step(self.minval, self.maxval, self.step)
        self._check_prior(self.minval, self.maxval)
        return self


class Log(Varying):
    """`base` to a power between minval and maxval."""

    type: Literal["log"]
    base: float = Field(gt=0)
    minval: float
    maxval: float
    count: Positive | None = None

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        _check_order(self.minval, self.maxval)
        for key, exponent in (("minval", self.minval), ("maxval", self.maxval)):
            try:
                math.pow(self.base, exponent)
            except OverflowError:
                raise wrong(
                    f"is an exponent, not a value: {self.base:g} ** {exponent:g} is too large for a number",
                    key,
                ) from None
        low, high = sorted((math.pow(self.base, self.minval), math.pow(self.base, self.maxval)))
        self._check_prior(low, high)
        return self


class Categorical(Varying):
    """One of a list of any JSON values."""

    type: Literal["categorical"]
    vals: list[Any] = Field(min_length=1)

    @model_validator(mode="after")
    def _prior_is_there(self) -> Self:
        if self.prior is not None and self.prior not in self.vals:
            raise wrong(f"must be one of vals, found {in_words(self.prior)}", "prior")
        return self


class NestedGroup(RootModel[dict[str, "Hyperparameter"]]):
    """Hyperparameters under a common name."""


def _check_order(minval: float, maxval: float) -> None:
    if not minval < maxval:
        raise wrong(f"must be above minval ({minval:g}), found {maxval:g}", "maxval")


def _check_step(minval: float, maxval: float, step: float | None) -> None:
    if step is not None and step > maxval - minval:
        raise wrong(f"must be at most maxval - minval ({maxval - minval:g}), found {step:g}", "step")
    if step is not None and (maxval - minval) / step >= MAX_RANGE:
        raise wrong("the range from minval to maxval has too many steps to draw from", "step")


def _spelled_out(value: Any) -> Any:
    """Make a literal a constant; check that the type of a mapping exists."""
    if isinstance(value, dict):
        if value.get("type") is None:
            return {key: inner for key, inner in value.items() if key != "type"}
        if isinstance(value["type"], dict):
            raise wrong("a hyperparameter cannot be called type; choose another name", "type")
        return pick(value, "type", dict.fromkeys(TYPES), {}, "hyperparameter type")
    return value if isinstance(value, Section | NestedGroup) else {"type": "const", "val": value}


_typed = tag_of("type")


def _tag(value: Any) -> str:
    return (
        "<group>"
        if isinstance(value, NestedGroup) or (isinstance(value, dict) and "type" not in value)
        else _typed(value)
    )


Hyperparameter = Annotated[
    Annotated[Const, Tag("<const>")]
    | Annotated[Int, Tag("<int>")]
    | Annotated[Double, Tag("<double>")]
    | Annotated[Log, Tag("<log>")]
    | Annotated[Categorical, Tag("<categorical>")]
    | Annotated[NestedGroup, Tag("<group>")],
    Discriminator(_tag),
    BeforeValidator(_spelled_out),
]
NestedGroup.model_rebuild()


def _is_mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong(f"a mapping (name: value) is wanted, found {in_words(value)}")
    return value


Hyperparameters = Annotated[dict[str, Hyperparameter], BeforeValidator(_is_mapping)]


def bad_conditions(space: Mapping[str, Any], grid: bool) -> Iterator[tuple[Path, str]]:
    """Return the places of conditions (`when`) in a whole JSON space that can never be met, each with a sentence.
    `grid`: whether all points are to be enumerated."""
    named = dict(_named(space, ()))
    for path, value in named.items():
        when = value.get("when") if isinstance(value, Mapping) else None
        for name, wanted in (when or {}).items():
            other = named.get(tuple(name.split(".")))
            if grid:
                yield (*path, "when"), "a grid search cannot enumerate conditions: remove it, or use another searcher"
            elif other is None:
                yield (*path, "when", name), "there is no such hyperparameter; conditions name others in full, by dots"
            elif tuple(name.split(".")) == path:
                yield (*path, "when", name), "a hyperparameter cannot depend on itself"
            elif not any(_possible(other, each) for each in (wanted if isinstance(wanted, list) else [wanted])):
                yield (*path, "when", name), f"{name} never has this value"


def bad_points(space: Mapping[str, Any], points: Sequence[Any]) -> Iterator[tuple[Path, str]]:
    """Return the places of values in `points` that are not in a whole JSON space, each with a sentence."""
    named = dict(_named(space, ()))
    for number, point in enumerate(points):
        for path, value in _named(point, ()) if isinstance(point, Mapping) else ():
            if path not in named:
                yield (number, *path), "there is no such hyperparameter"
            elif not _in_range(named[path], value):
                yield (number, *path), f"{in_words(value)} is not in the range of this hyperparameter"


def bad_combinations(space: Mapping[str, Any], forbidden: Sequence[Any]) -> Iterator[tuple[Path, str]]:
    """Return the places in `forbidden` that name no hyperparameter of a whole JSON space, each with a sentence."""
    named = dict(_named(space, ()))
    for number, combination in enumerate(forbidden):
        if not combination:
            yield (number,), "it names no hyperparameter, and would forbid every point"
        for name, wanted in combination.items() if isinstance(combination, Mapping) else ():
            if tuple(name.split(".")) not in named:
                yield (number, name), "there is no such hyperparameter; combinations name them in full, by dots"
            elif isinstance(wanted, Mapping) and not _is_range(wanted):
                yield (number, name), "a range is written {min: NUMBER, max: NUMBER}"


def _is_range(wanted: Mapping[Any, Any]) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in wanted.values())
    return bool(wanted) and wanted.keys() <= {"min", "max"} and numbers


def _in_range(hyperparameter: Any, value: Any) -> bool:
    kind = hyperparameter.get("type") if isinstance(hyperparameter, Mapping) else None
    if kind not in ("int", "double", "log"):
        return _possible(hyperparameter, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind == "int" and value != int(value)):
        return False
    ends = [hyperparameter["minval"], hyperparameter["maxval"]]
    if kind == "log":
        ends = sorted(math.pow(hyperparameter["base"], end) for end in ends)
    return bool(ends[0] <= value <= ends[1])


def _named(space: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in space.items():
        if isinstance(value, Mapping) and value.get("type") is None:
            yield from _named(value, (*path, name))
        else:
            yield (*path, name), value


def _possible(hyperparameter: Any, value: Any) -> bool:
    if not isinstance(hyperparameter, Mapping):
        return bool(hyperparameter == value)
    match hyperparameter.get("type"):
        case "const":
            return bool(hyperparameter.get("val") == value)
        case "categorical":
            return value in (hyperparameter.get("vals") or ())
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def without_count(space: Mapping[str, Any], path: Path) -> Iterator[Path]:
    """Return the places in a JSON space where a grid search misses a `count`; also inside of lists, which are
    constants."""
    for name, value in space.items():
        yield from _without_count(value, (*path, name))


def _without_count(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _without_count(inner, (*path, index))
    elif isinstance(value, Mapping):
        kind = value.get("type")
        if kind is None:
            yield from without_count(value, path)
        elif kind == "const" and isinstance(value.get("val"), list):
            yield from _without_count(value["val"], path)
        elif kind in ("int", "double", "log") and value.get("count") is None and value.get("step") is None:
            yield path
