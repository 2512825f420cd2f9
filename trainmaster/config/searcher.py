"""The `searcher` section: one model per method that is run."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

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


class _Common(Section):
    ignored: ClassVar[frozenset[str]] = frozenset({"stop_once"})

    metric: Name | None = None
    smaller_is_better: bool = True
    source_trial_id: Positive | None = None
    source_checkpoint_uuid: Line | None = None
    max_length: SearcherLength | None = None
    """How releases before 0.38 told a trial how long to train; the master does not use it."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.source_trial_id is not None and self.source_checkpoint_uuid is not None:
            raise wrong("cannot be set together with source_trial_id; keep one", "source_checkpoint_uuid")
        return self


class Single(_Common):
    """One trial."""

    name: Literal["single"]


class Random(_Common):
    """Independent random points."""

    name: Literal["random"]
    max_trials: Positive
    max_concurrent_trials: Natural = 16


class GridSearcher(_Common):
    """All points of a grid."""

    name: Literal["grid"]
    max_concurrent_trials: Natural = 16


class _Halving(_Common):
    max_trials: Positive
    max_concurrent_trials: Natural = 16
    divisor: float = Field(default=4.0, gt=1)
    max_time: Positive | None = None
    time_metric: Name | None = None


class AsyncHalving(_Halving):
    """One bracket of ASHA."""

    name: Literal["async_halving"]
    num_rungs: Positive


class AdaptiveAsha(_Halving):
    """Several brackets of ASHA."""

    name: Literal["adaptive_asha"]
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    max_rungs: Positive = 5
    bracket_rungs: list[Annotated[Whole, Field(ge=1)]] = Field(default_factory=list)


NAMES = ("single", "random", "grid", "adaptive_asha", "async_halving")
_GONE = {
    "adaptive": "the searcher adaptive is no longer run; use adaptive_asha",
    "adaptive_simple": "the searcher adaptive_simple is no longer run; use adaptive_asha",
    "sync_halving": "the searcher sync_halving is no longer run; use async_halving",
    "custom": "the searcher custom is no longer run; create experiments with the searcher single from your code",
}


def _known(value: Any) -> Any:
    return value if isinstance(value, _Common) else pick(value, "name", dict.fromkeys(NAMES), _GONE, "searcher")


Searcher = Annotated[
    Annotated[Single, Tag("<single>")]
    | Annotated[Random, Tag("<random>")]
    | Annotated[GridSearcher, Tag("<grid>")]
    | Annotated[AsyncHalving, Tag("<async_halving>")]
    | Annotated[AdaptiveAsha, Tag("<adaptive_asha>")],
    Discriminator(tag_of("name")),
    BeforeValidator(_known),
]
