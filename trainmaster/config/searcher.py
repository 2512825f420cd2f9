"""The `searcher` section: one model per method that is run. What a file leaves open a template may say, so that nothing
is required of a part: `incomplete` judges the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_serializer, model_validator

from .messages import in_words
from .shapes import Line, Name, Natural, Positive, Section, Whole, pick, tag_of, wrong

UNITS = ("batches", "records", "epochs")


class Length(Section):
    """An amount of training in exactly one unit."""

    batches: Natural | None = None
    records: Natural | None = None
    epochs: Natural | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_unit(cls, data: Any) -> Any:
        if isinstance(data, dict) and not set(data) - set(UNITS):
            given = [unit for unit in UNITS if data.get(unit) is not None]
            if len(given) != 1:
                found = " and ".join(given) or "none"
                raise wrong(f"needs exactly one of batches, records and epochs, found {found}")
        return data

    @model_serializer
    def _given_unit(self) -> dict[str, int]:
        return {unit: amount for unit in UNITS if (amount := getattr(self, unit)) is not None}


def _length(value: Any) -> Any:
    amount = value if not isinstance(value, dict) else next((v for v in value.values() if v is not None), 1)
    if isinstance(value, bool) or not isinstance(value, int | dict):
        raise wrong(f"a length is wanted, such as {{batches: 1000}}, found {in_words(value)}")
    if isinstance(amount, int) and amount < 1:
        raise wrong(f"must be at least 1, found {amount}")
    return value


def _length_tag(value: Any) -> str:
    return "<number>" if isinstance(value, int) else "<length>"


SearcherLength = Annotated[
    Annotated[int, Tag("<number>")] | Annotated[Length, Tag("<length>")],
    Discriminator(_length_tag),
    BeforeValidator(_length),
]


IGNORED = frozenset({"stop_once"})


class _Common(Section):
    ignored: ClassVar[frozenset[str]] = IGNORED

    metric: Name | None = None
    smaller_is_better: bool = True
    source_trial_id: Positive | None = None
    source_checkpoint_uuid: Line | None = None
    max_length: SearcherLength | None = None
    """How releases before 0.38 told a trial how long to train; the master does not use it."""


class Unnamed(_Common):
    """What all methods have in common, for the method that a template or the site's defaults name."""

    name: None = None


class SingleConfig(_Common):
    """One trial."""

    name: Literal["single"]


class RandomConfig(_Common):
    """Independent random points."""

    name: Literal["random"]
    max_trials: Positive | None = None
    max_concurrent_trials: Natural = 16


class GridConfig(_Common):
    """All points of a grid."""

    name: Literal["grid"]
    max_concurrent_trials: Natural = 16


class _Halving(_Common):
    max_trials: Positive | None = None
    max_concurrent_trials: Natural = 16
    divisor: float = Field(default=4.0, gt=1)
    max_time: Positive | None = None
    time_metric: Name | None = None


class AsyncHalvingConfig(_Halving):
    """One bracket of ASHA."""

    name: Literal["async_halving"]
    num_rungs: Positive | None = None


class AdaptiveAshaConfig(_Halving):
    """Several brackets of ASHA."""

    name: Literal["adaptive_asha"]
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    max_rungs: Positive = 5
    bracket_rungs: list[Annotated[Whole, Field(ge=1)]] = Field(default_factory=list)


_MAX_TRIALS = ("max_trials", "how many trials there are in all")
_TIMES = (
    ("max_time", "how long a trial trains at most, in units of time_metric"),
    ("time_metric", "the validation metric that says how long a trial has trained, such as epochs"),
)
_REQUIRED = {
    "random": (_MAX_TRIALS,),
    "async_halving": (_MAX_TRIALS, ("num_rungs", "how many rungs the bracket has"), *_TIMES),
    "adaptive_asha": (_MAX_TRIALS, *_TIMES),
}


def incomplete(searcher: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a section that nothing is merged into any more lacks: the key, and a sentence."""
    name = searcher.get("name")
    if name is None:
        yield "name", f"is required; one of {', '.join(NAMES)}"
    if searcher.get("metric") is None:
        yield "metric", "is required: the validation metric that trials are compared by"
    if searcher.get("source_trial_id") is not None and searcher.get("source_checkpoint_uuid") is not None:
        yield "source_checkpoint_uuid", "cannot be set together with source_trial_id; keep one"
    for key, what in _REQUIRED.get(str(name), ()):
        if searcher.get(key) is None:
            since = "; it replaces max_length" if key == "max_time" and searcher.get("max_length") else ""
            yield key, f"is required for {name}: {what}{since}"


NAMES = ("single", "random", "grid", "adaptive_asha", "async_halving")
_GONE = {
    "adaptive": "the searcher adaptive is no longer run; use adaptive_asha",
    "adaptive_simple": "the searcher adaptive_simple is no longer run; use adaptive_asha",
    "sync_halving": "the searcher sync_halving is no longer run; use async_halving",
    "custom": "the searcher custom is no longer run; create experiments with the searcher single from your code",
}


def _known(value: Any) -> Any:
    if isinstance(value, dict) and value.get("name") is None and value.keys() <= {*Unnamed.model_fields}:
        return value
    return value if isinstance(value, _Common) else pick(value, "name", dict.fromkeys(NAMES), _GONE, "searcher")


Searcher = Annotated[
    Annotated[SingleConfig, Tag("<single>")]
    | Annotated[RandomConfig, Tag("<random>")]
    | Annotated[GridConfig, Tag("<grid>")]
    | Annotated[AsyncHalvingConfig, Tag("<async_halving>")]
    | Annotated[AdaptiveAshaConfig, Tag("<adaptive_asha>")]
    | Annotated[Unnamed, Tag("<None>")],
    Discriminator(tag_of("name")),
    BeforeValidator(_known),
]
