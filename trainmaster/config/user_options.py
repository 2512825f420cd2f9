"""What experiments and tasks may say to a dispatcher, in a section of its name.

Determined's files have two of these sections, `slurm` and `pbs`; those of other dispatchers come from their plugins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, create_model, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from trainmaster import plugins
from trainmaster.config.shapes import Line, Positive, Section

log = logging.getLogger(__name__)


class UserOptions(Section):
    """The keys of every such section; a dispatcher's `UserOptions` inherits it and adds its own keys."""

    appended: ClassVar[frozenset[str]] = frozenset()
    """Lists to which an experiment adds, behind what the site's defaults hold, instead of replacing it."""

    slots_per_node: Positive | None = None
    """How many slots of each node a job takes."""


class Slurm(UserOptions):
    """The `slurm` section; which sbatch options may be given is the Slurm dispatcher's to say."""

    appended: ClassVar[frozenset[str]] = frozenset({"sbatch_args"})

    gpu_type: Line | None = None
    sbatch_args: list[Line] = Field(default_factory=list)


class Pbs(UserOptions):
    """The `pbs` section; which qsub options may be given is the PBS dispatcher's to say."""

    appended: ClassVar[frozenset[str]] = frozenset({"pbsbatch_args"})

    pbsbatch_args: list[Line] = Field(default_factory=list)


OF_DETERMINED: Mapping[str, type[UserOptions]] = {"slurm": Slurm, "pbs": Pbs}
"""The sections that Determined's files have, whichever dispatchers are installed."""


@cache
def sections_of_plugins() -> Mapping[str, type[UserOptions]]:
    """Return the sections of all other installed dispatchers that have one, by their names."""
    sections = {}
    for name in plugins.installed(plugins.DISPATCHERS).keys() - OF_DETERMINED.keys():
        try:
            plugin = plugins.load(plugins.DISPATCHERS, name)
        except plugins.PluginError as error:
            log.warning("experiments cannot have a section %s: %s", name, error)
            continue
        if plugin.UserOptions is not None and not plugin.traits.user_section:
            sections[name] = plugin.UserOptions
    return sections


def section_named(name: str) -> type[UserOptions] | None:
    """Return the model of a section of experiments; None for one that is no dispatcher's."""
    return OF_DETERMINED.get(name) or sections_of_plugins().get(name)


class WithUserOptions(Section):
    """A configuration whose keys include the sections of installed dispatchers, beside `slurm` and `pbs`."""

    model_config = ConfigDict(extra="allow")  # what is none of these is refused below

    @classmethod
    def sections_of_plugins(cls) -> Mapping[str, type[Section]]:
        return sections_of_plugins()

    @classmethod
    def has(cls, key: str) -> bool:
        """Whether a configuration may have `key`."""
        return key in cls.model_fields or key in sections_of_plugins()

    @model_validator(mode="wrap")
    @classmethod
    def _with_sections(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        rest = {key: value for key, value in data.items() if key not in cls.model_fields and key not in cls.ignored}
        own = {key: value for key, value in data.items() if key not in rest}
        faults, made = [], None
        try:
            sections = model_of_sections().model_validate(rest)
            own |= {key: getattr(sections, key) for key in sections.model_fields_set}
        except ValidationError as error:
            faults.append(error)
        try:
            made = handler(own)
        except ValidationError as error:
            faults.append(error)
        if made is None or faults:
            raise faults[0] if len(faults) == 1 else _together(cls.__name__, faults)
        return made


@cache
def model_of_sections() -> type[Section]:
    """Return a model of the sections alone."""
    fields: dict[str, Any] = {name: (model | None, None) for name, model in sections_of_plugins().items()}
    return create_model("SectionsOfPlugins", __base__=Section, **fields)


def _together(title: str, errors: Iterable[ValidationError]) -> ValidationError:
    """All that is wrong, as one error."""
    details = []
    for each in (each for error in errors for each in error.errors(include_url=False)):
        context = each.get("ctx", {})
        kind = PydanticCustomError("check", "{message}", context) if each["type"] == "check" else each["type"]
        details.append(InitErrorDetails(type=kind, loc=each["loc"], input=each["input"], ctx=context))
    return ValidationError.from_exception_data(title, details)
