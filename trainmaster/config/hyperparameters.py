"""Models the `hyperparameters` section: typed values, nested groups, and literals as constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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


class Int(Section):
    """An integer from minval to maxval, both included."""

    type: Literal["int"]
    minval: Whole
    maxval: Whole
    count: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.minval, self.maxval)
        if self.maxval - self.minval >= MAX_RANGE:
            raise wrong("the range from minval to maxval is too wide to draw from")
        return self


class Double(Section):
    """A number between minval and maxval."""

    type: Literal["double"]
    minval: float
    maxval: float
    count: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.minval, self.maxval)
        return self


class Log(Section):
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
        return self


class Categorical(Section):
    """One of a list of any JSON values."""

    type: Literal["categorical"]
    vals: list[Any] = Field(min_length=1)


class NestedGroup(RootModel[dict[str, "Hyperparameter"]]):
    """Hyperparameters under a common name."""


def _check_order(minval: float, maxval: float) -> None:
    if not minval < maxval:
        raise wrong(f"must be above minval ({minval:g}), found {maxval:g}", "maxval")


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
        elif kind in ("int", "double", "log") and value.get("count") is None:
            yield path
