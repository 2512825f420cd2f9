"""Parses and models experiment configurations (version 0 of Determined's).

`parse_experiment` reads users' text and reports all errors at once, with their lines. Its result is complete:
overrides, the site's defaults and the schema's defaults are merged in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainmaster.config.environment import BindMount, Environment, LogPolicy, Resources
from trainmaster.config.hyperparameters import (
    Hyperparameters,
    bad_combinations,
    bad_conditions,
    bad_points,
    without_count,
)
from trainmaster.config.merge import merge
from trainmaster.config.messages import Complaint, ConfigError, in_words
from trainmaster.config.node_data import Data
from trainmaster.config.overrides import override
from trainmaster.config.searcher import IGNORED as SEARCHER_IGNORED
from trainmaster.config.searcher import Length, Searcher, asks_and_tells, takes_grid
from trainmaster.config.searcher import incomplete as incomplete_searcher
from trainmaster.config.shapes import Label, Line, Name, Natural, Positive, Section, Steps, Text, Whole, wrong
from trainmaster.config.source import Document, read, write
from trainmaster.config.storage import NOT_OF_USERS, SITE_ONLY, CheckpointStorage
from trainmaster.config.storage import incomplete as incomplete_storage
from trainmaster.config.user_options import Pbs, Slurm, WithUserOptions
from trainmaster.config.validation import check, in_order


def entrypoint_of(value: Any) -> Any:
    """Return the value unchanged, if it is a command line or a list of words. Raises an error that pydantic reports."""
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) for part in parts):
        odd = next((part for part in parts if not isinstance(part, str)), value)
        raise wrong(f"a command, as a text or as a list of texts, is wanted, found {in_words(odd)}")
    if not any(part.strip() for part in parts):
        raise wrong("must not be empty")
    return value


def _unique(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


class Retention(Section):
    """How long task logs are kept: days, -1 for ever."""

    log_retention_days: Annotated[Whole, Field(ge=-1, le=32767)] | None = None


class Profiling(Section):
    """The `profiling` section."""

    enabled: bool = False
    begin_on_batch: Steps = 0
    end_after_batch: Steps | None = None
    sync_timings: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_after_batch is not None and self.end_after_batch < self.begin_on_batch:
            raise wrong(
                f"must be at least begin_on_batch ({self.begin_on_batch}), found {self.end_after_batch}",
                "end_after_batch",
            )
        return self


class Reproducibility(Section):
    """The seed of the search; with null the master chooses one."""

    experiment_seed: Annotated[Whole, Field(ge=0, lt=2**32)] | None = None


class Optimizations(Section):
    """Settings of Determined's trial classes; only stored, for code that reads them."""

    aggregation_frequency: Positive = 1
    auto_tune_tensor_fusion: bool = False
    average_aggregated_gradients: bool = True
    average_training_metrics: bool = True
    grad_updates_size_file: Line | None = None
    gradient_compression: bool = False
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    tensor_fusion_cycle_time: Natural = 1
    tensor_fusion_threshold: Natural = 64


class Pachd(Section):
    host: Name
    port: Whole


class PachydermProxy(Section):
    scheme: Name
    host: Name
    port: Whole


class PachydermDataset(Section):
    project: Name
    repo: Name
    commit: Name
    branch: Name
    token: Line


class Pachyderm(Section):
    """A data set in Pachyderm."""

    pachd: Pachd
    proxy: PachydermProxy
    dataset: PachydermDataset


class Webhooks(Section):
    """Which webhooks get the experiment's events."""

    webhook_id: list[Whole] | None = None
    webhook_name: list[Line] | None = None
    exclude: bool = False


class Integrations(Section):
    """The `integrations` section."""

    pachyderm: Pachyderm | None = None
    webhooks: Webhooks | None = None


class ExperimentConfig(WithUserOptions):
    """A whole experiment configuration. Fields that are None were not set and have no default."""

    ignored: ClassVar[frozenset[str]] = frozenset({"security", "tensorboard_storage", "data_layer", "internal"})

    name: Line | None = None
    description: Text | None = None
    labels: Annotated[list[Label], AfterValidator(_unique)] = Field(default_factory=list)
    workspace: Line = ""
    project: Line = ""
    entrypoint: Annotated[Any, BeforeValidator(entrypoint_of)] = None
    """Text for `sh -c`, or a list of arguments."""
    debug: bool = False
    data: Data = Field(default_factory=dict)
    hyperparameters: Hyperparameters = Field(default_factory=dict)
    searcher: Searcher | None = None
    resources: Resources = Resources()
    environment: Environment = Environment()
    bind_mounts: list[BindMount] = Field(default_factory=list)
    checkpoint_storage: CheckpointStorage | None = None
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    min_checkpoint_period: Length = Length(batches=0)
    min_validation_period: Length = Length(batches=0)
    perform_initial_validation: bool = False
    scheduling_unit: Positive = 100
    records_per_epoch: Steps = 0
    max_restarts: Natural = 5
    failure_fuse: Natural = 5
    """A search is paused when so many trials, the first ones, fail at once for one cause; 0: never."""
    log_policies: list[LogPolicy] = Field(default_factory=list)
    retention_policy: Retention | None = None
    preemption_timeout: Natural | None = None
    """Seconds between the preemption request and the kill (the grace)."""
    profiling: Profiling = Profiling()
    reproducibility: Reproducibility = Reproducibility()
    optimizations: Optimizations = Optimizations()
    slurm: Slurm = Slurm()
    pbs: Pbs = Pbs()
    integrations: Integrations | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the complete configuration in Determined's JSON shape."""
        return self.model_dump(mode="json", exclude_none=False)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ExperimentConfig:
        """Read a configuration from a stored result of `to_json`."""
        return cls.model_validate(stored)

    def given(self) -> dict[str, Any]:
        """Only the fields that were set, normalised; the input of `merge`."""
        return self.model_dump(mode="json", exclude_unset=True)


def parse_experiment(
    text: str | Document,
    *,
    source: str = "experiment.yaml",
    defaults: Sequence[Mapping[str, Any]] = (),
    overrides: Sequence[str] = (),
    invariants: Sequence[Mapping[str, Any]] = (),
) -> ExperimentConfig:
    """Parse the complete configuration of an experiment.

    Args:
        text: YAML (or JSON, which is YAML), or the document that `read` has made of it.
        source: Name of the text in complaints, usually its file name.
        defaults: Partial configurations for keys that the text does not set, most important first.
        overrides: `key.path=value`; each takes precedence over the text.
        invariants: What policies will set later (`policies.governed`) and may therefore be missing here, most important
            first.

    Raises:
        ConfigError: All errors, in the order of the file.
    """
    document = _document(text, source)
    override(document, overrides)
    merged, complaints = _merged(document, defaults)
    governed = merge(_merged_defaults(invariants, "the configuration policies"), merged)
    complaints += incomplete(governed, document, {c.path for c in complaints})
    if complaints:
        raise ConfigError(in_order(complaints), document.source)
    return _whole(merged, document)


def parse_unfinished(
    text: str | Document, *, source: str = "experiment.yaml", defaults: Sequence[Mapping[str, Any]] = ()
) -> ExperimentConfig:
    """Like `parse_experiment`, before all defaults are known, so that required keys may be missing. Raises ConfigError
    for other errors; it then lists the missing keys too."""
    document = _document(text, source)
    merged, complaints = _merged(document, defaults)
    if complaints:
        complaints += incomplete(merged, document, {c.path for c in complaints})
        raise ConfigError(in_order(complaints), document.source)
    return _whole(merged, document)


def without_effect(document: Document) -> list[str]:
    """Return the keys of a file that have no effect, a sentence each."""
    return [f"{document.complain(path, 'has no effect in an experiment')}." for path in forgotten(document.data)]


def forgotten(data: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Paths of keys that have no effect, or no longer have one."""
    yield from ((key,) for key in data if key in ExperimentConfig.ignored and data[key] is not None)
    for section, ignored in (("resources", Resources.ignored), ("searcher", SEARCHER_IGNORED)):
        inner = data.get(section)
        if isinstance(inner, Mapping):
            yield from ((section, key) for key in inner if key in ignored and inner[key] is not None)


def apply_overrides(text: str, overrides: Sequence[str]) -> str:
    """Return the YAML text with each `key.path=value` set. Raises ConfigError."""
    document = read(text, "experiment.yaml")
    override(document, overrides)
    return write(document.data)


def _document(text: str | Document, source: str) -> Document:
    return read(text, source) if isinstance(text, str) else text


def _merged(document: Document, defaults: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], list[Complaint]]:
    """Merge a file over the defaults; return it, and the complaints about the file."""
    given, complaints = check(ExperimentConfig, document.data, document)
    site = _merged_defaults(defaults, "the site's defaults")
    return merge(given.given(), site) if given else _plausible(document.data, site), complaints


def _whole(merged: Mapping[str, Any], document: Document) -> ExperimentConfig:
    whole, complaints = check(ExperimentConfig, merged, document)
    if whole is None:
        raise ConfigError(complaints, document.source)
    return whole


def _merged_defaults(defaults: Iterable[Mapping[str, Any]], name: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for fragment in defaults:
        document = Document(name, dict(fragment))
        config, complaints = check(ExperimentConfig, document.data, document)
        if config is None:
            raise ConfigError(complaints, document.source)
        merged = merge(merged, config.given())
    return merged


def _plausible(data: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, Any]:
    """Merge roughly for checking completeness when the file has other errors; makes no assumptions on types."""
    merged = dict(site)
    for key, value in data.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = {**below, **value}
        elif value is not None:
            merged[key] = value
    return merged


def incomplete(
    config: Mapping[str, Any], document: Document, known: Set[tuple[str | int, ...]] = frozenset()
) -> list[Complaint]:
    """Return what is missing or cannot be run once everything is merged. Paths in `known` already have a complaint."""
    complaints: list[Complaint] = []

    def complain(message: str, *path: str | int) -> None:
        if not any(path[: len(place)] == place or place[: len(path)] == path for place in known if place):
            complaints.append(document.complain(path, message))

    if config.get("entrypoint") is None and not asks_and_tells(config.get("searcher")):
        complain("is required: the command that trains, such as python3 train.py", "entrypoint")
    storage = config.get("checkpoint_storage")
    if storage is None or (isinstance(storage, Mapping) and storage.get("type") is None):
        complain("is required: neither the file nor the master's configuration sets it", "checkpoint_storage")
    elif isinstance(storage, Mapping):
        for key, message in incomplete_storage(storage):
            complain(message, "checkpoint_storage", *key)
        for name in SITE_ONLY:
            if storage.get(name) is not None:
                complain(NOT_OF_USERS, "checkpoint_storage", name)
    retention = config.get("retention_policy")
    if isinstance(retention, Mapping) and retention.get("log_retention_days") is None:
        complain("is required: how many days task logs are kept, -1 for ever", "retention_policy", "log_retention_days")
    searcher = config.get("searcher")
    if searcher is None:
        complain("is required, such as {name: single, metric: validation_loss}", "searcher")
    elif isinstance(searcher, Mapping):
        for name, message in incomplete_searcher(searcher):
            complain(message, "searcher", name)
        space = config.get("hyperparameters")
        grid = takes_grid(searcher)
        # What has complaints of its own may be anything.
        sound = not any(place[:1] in (("hyperparameters",), ("searcher",)) for place in known)
        if sound and isinstance(space, Mapping):
            for path, message in bad_conditions(space, grid):
                complain(message, "hyperparameters", *path)
            for path, message in bad_points(space, searcher.get("first_points") or ()):
                complain(message, "searcher", "first_points", *path)
            for path, message in bad_combinations(space, searcher.get("forbidden") or ()):
                complain(message, "searcher", "forbidden", *path)
        if grid and isinstance(space, Mapping):
            for path in without_count(space, ("hyperparameters",)):
                complain("is required for a grid search: how many values to try", *path, "count")
    return complaints
