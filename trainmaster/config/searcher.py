"""The `searcher` section: what all searchers have, and how a section finds the model of the searcher that it names.

What a file leaves open a template may say, so that nothing is required of a part: `incomplete` judges the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from trainmaster import plugins
from trainmaster.config.messages import in_words
from trainmaster.config.shapes import Line, Name, Natural, Positive, Section, Steps, chosen, pick, wrong

UNITS = ("batches", "records", "epochs")


class Length(Section):
    """An amount of training in exactly one unit."""

    batches: Steps | None = None
    records: Steps | None = None
    epochs: Steps | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_unit(cls, data: Any) -> Any:
        if isinstance(data, dict) and not set(data) - set(UNITS):
            given = [unit for unit in UNITS if data.get(unit) is not None]
            if len(given) != 1:
                units = " and ".join(given) or "none"
                raise wrong(f"needs exactly one of batches, records and epochs, found {units}")
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
    if isinstance(amount, int) and amount >= 2**63:
        raise wrong(f"must be at most 2**63 - 1, found {amount}")
    return value


def _length_tag(value: Any) -> str:
    return "<number>" if isinstance(value, int) else "<length>"


SearcherLength = Annotated[
    Annotated[int, Tag("<number>")] | Annotated[Length, Tag("<length>")],
    Discriminator(_length_tag),
    BeforeValidator(_length),
]


IGNORED = frozenset({"stop_once"})


class SearcherOptions(Section):
    """The keys of every `searcher` section. A searcher inherits it, adds its own keys, and makes its method of them."""

    ignored: ClassVar[frozenset[str]] = IGNORED
    required: ClassVar[Mapping[str, str]] = {}
    """Keys that must be set once all is merged, each with what it is. They have no default and may be None before."""
    one_of: ClassVar[Mapping[str, str]] = {}
    """Keys of which one at least must be set, each with what it is."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Keys of `ManyTrials` that make no sense here, each with what to do."""
    takes_grid: ClassVar[bool] = False
    """Whether it tries the points of a grid, so that hyperparameters must say how many values of them to try."""

    name: Name | None = None
    metric: Name | None = None
    smaller_is_better: bool = True
    ask_tell: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether programs outside of the master run the trials: they ask for one and tell what it measured."""
    source_trial_id: Positive | None = None
    source_checkpoint_uuid: Line | None = None
    max_length: SearcherLength | None = None
    """How releases before 0.38 told a trial how long to train; the master does not use it."""


class ManyTrials(SearcherOptions):
    """The keys of searchers that run several trials at a time."""

    max_concurrent_trials: Natural = 16
    """0: as many as the searcher sees fit."""
    first_points: list[dict[str, Any]] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Points to try before any other; what one of them leaves open is chosen as for other trials."""
    forbidden: list[dict[str, Any]] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Combinations that are never tried: by dotted name a value, a list of values, or a range `{min:, max:}`."""


_GONE = {
    "adaptive": "the searcher adaptive is no longer run; use adaptive_asha",
    "adaptive_simple": "the searcher adaptive_simple is no longer run; use adaptive_asha",
    "sync_halving": "the searcher sync_halving is no longer run; use async_halving",
}


def incomplete(searcher: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return what a section that nothing is merged into any more lacks: the key, and a sentence."""
    name = searcher.get("name")
    if name is None:
        yield "name", f"is required; one of {', '.join(_names())}"
    if searcher.get("metric") is None:
        yield "metric", "is required: the validation metric that trials are compared by"
    if searcher.get("source_trial_id") is not None and searcher.get("source_checkpoint_uuid") is not None:
        yield "source_checkpoint_uuid", "cannot be set together with source_trial_id; keep one"
    try:
        model = model_of(searcher)
    except PydanticCustomError:
        return  # its own complaint says so
    required = model.required
    if model.one_of and all(searcher.get(key) is None for key in model.one_of):
        (first, what), *others = model.one_of.items()
        yield first, f"is required for {name}: {what}; or else {' or '.join(f'{key}, {it}' for key, it in others)}"
    for key, advice in model.refused.items():
        if searcher.get(key):
            yield key, f"is of no use with {name}: {advice}"
    for key, what in required.items():
        if searcher.get(key) is None:
            since = "; it replaces max_length" if key == "max_time" and searcher.get("max_length") else ""
            yield key, f"is required for {name}: {what}{since}"


def asks_and_tells(section: Any) -> bool:
    """Whether the trials of a section, as a user wrote it, are run outside of the master."""
    return isinstance(section, dict) and section.get("ask_tell") is True


def _names() -> list[str]:
    return sorted(plugins.installed(plugins.SEARCHERS))


def takes_grid(searcher: Mapping[str, Any]) -> bool:
    """Whether the searcher of a section tries the points of a grid."""
    try:
        return model_of(searcher).takes_grid
    except PydanticCustomError:
        return False  # its own complaint says so


def keys_of(section: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys that a section of a searcher may have; none where it names no searcher that is installed."""
    try:
        return frozenset(model_of(dict(section)).model_fields)
    except PydanticCustomError:
        return frozenset()


def model_of(section: Any) -> type[SearcherOptions]:
    """Return the model of the searcher that a section names; where it names none, a template or the site's defaults
    may. Raises PydanticCustomError."""
    if isinstance(section, dict) and section.get("name") is None and section.keys() <= {*SearcherOptions.model_fields}:
        return SearcherOptions
    name = section.get("name") if isinstance(section, dict) else None
    try:
        model: type[SearcherOptions] = plugins.load(plugins.SEARCHERS, name if isinstance(name, str) else "")
    except plugins.PluginError as error:
        pick(section, "name", _names(), _GONE, "searcher")
        raise wrong(error.after_colon, "name") from None
    return model


Searcher = chosen(SearcherOptions, model_of)
