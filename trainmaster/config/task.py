"""Parses and models the configurations of standalone tasks: commands, notebooks, shells, TensorBoards, generic
tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from trainmaster.config.environment import BindMount, Devices, Environment
from trainmaster.config.experiment import entrypoint_of
from trainmaster.config.limits import DEFAULTS, Limits
from trainmaster.config.merge import merge
from trainmaster.config.messages import ConfigError, in_words
from trainmaster.config.shapes import Bytes, Line, Natural, Section, Text, Whole, wrong
from trainmaster.config.source import Document, check_size, read
from trainmaster.config.user_options import Pbs, Slurm, WithUserOptions
from trainmaster.config.validation import check

SOURCE = "the task's configuration"
_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def seconds_of(duration: str | float) -> float:
    """Seconds of a duration in Go's notation (`1h30m`, `45s`), or a number of seconds. Raises ValueError."""
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        return float(duration)
    match = _DURATION.fullmatch(str(duration).strip())
    if not match:
        raise ValueError(f"{duration!r} is not a duration")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _duration(value: Any) -> Any:
    try:
        if not isinstance(value, bool) and isinstance(value, str | int | float) and seconds_of(value) >= 0:
            return value
    except ValueError:
        pass
    raise wrong(f"a duration such as 30m or 1h30m is wanted, found {in_words(value)}")


Duration = Annotated[str | float, BeforeValidator(_duration)]


def _program(value: Any) -> Any:
    """As in experiments, or an empty list: such a command starts and ends at once."""
    return value if value == [] else entrypoint_of(value)


class TaskResources(Section):
    """The `resources` section."""

    ignored: ClassVar[frozenset[str]] = frozenset({"agent_label"})
    refused: ClassVar[dict[str, str]] = {"slots_per_trial": "is for experiments; a task takes slots"}

    slots: Natural = 1
    max_slots: Natural | None = None
    weight: float = Field(default=1.0, ge=0)
    priority: Annotated[Whole, Field(ge=1, le=99)] | None = None
    resource_pool: Line = ""
    shm_size: Bytes | None = None
    devices: Devices = Field(default_factory=list)
    is_single_node: bool | None = None
    native_parallel: bool = False


class TaskConfig(WithUserOptions):
    """A task's configuration. Fields that are None were not set and have no default."""

    ignored: ClassVar[frozenset[str]] = frozenset({"internal", "debug"})

    description: Text | None = None
    entrypoint: Annotated[Any, BeforeValidator(_program)] = None
    """Text for `sh -c`, or a list of arguments."""
    workspace: Line = ""
    project: Line = ""
    resources: TaskResources = TaskResources()
    environment: Environment = Environment()
    bind_mounts: list[BindMount] = Field(default_factory=list)
    work_dir: Line | None = None
    """The working folder; `$DET_USER` and `$AGENT_USER` in it become the owner's name and the job's account."""
    idle_timeout: Duration | None = None
    notebook_idle_type: Literal["kernels_or_terminals", "kernel_connections", "activity"] = "kernels_or_terminals"
    tensorboard_args: list[Line] = Field(default_factory=list)
    preemption_timeout: Natural | None = None
    """Seconds between the preemption request and the kill (the grace), for tasks that can be paused."""
    slurm: Slurm = Slurm()
    pbs: Pbs = Pbs()

    def to_json(self) -> dict[str, Any]:
        """Return the complete configuration in Determined's JSON shape."""
        return self.model_dump(mode="json", exclude_none=False)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TaskConfig:
        """Read a configuration from a stored result of `to_json`."""
        return cls.model_validate(stored)

    def given(self) -> dict[str, Any]:
        """Only the fields that were set, normalised; the input of `merge`."""
        return self.model_dump(mode="json", exclude_unset=True)


def task_document(given: str | Mapping[str, Any], limits: Limits = DEFAULTS) -> Document:
    """Return YAML text, or the mapping that a client has parsed from it, as a document. Raises ConfigError for one over
    its limits."""
    if isinstance(given, str):
        return read(given, SOURCE, limits)
    check_size(limits, given, SOURCE)
    return Document(SOURCE, dict(given))


def parse_task(document: Document, *, defaults: Sequence[Mapping[str, Any]] = ()) -> TaskConfig:
    """Parse the complete configuration of a task.

    Args:
        document: See `task_document`.
        defaults: Partial configurations for keys that it does not set, most important first; keys that only experiments
            have are skipped.

    Raises:
        ConfigError: All errors, in the order of the text.
    """
    config, complaints = check(TaskConfig, document.data, document)
    if config is None:
        raise ConfigError(complaints, SOURCE)
    merged = config.given()
    for fragment in defaults:
        about_tasks = {key: value for key, value in fragment.items() if TaskConfig.has(key)}
        resources = about_tasks.get("resources")
        if isinstance(resources, Mapping):
            known = {key: value for key, value in resources.items() if key in TaskResources.model_fields}
            about_tasks["resources"] = known
        site, complaints = check(TaskConfig, about_tasks, Document("the site's defaults", about_tasks))
        if site is None:
            raise ConfigError(complaints, "the site's defaults")
        merged = merge(merged, site.given())
    whole, complaints = check(TaskConfig, merged, document)
    if whole is None:
        raise ConfigError(complaints, SOURCE)
    return whole
