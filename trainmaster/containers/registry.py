"""Container runtimes by the name that the administrator's configuration uses."""

from __future__ import annotations

from trainmaster.containers.apptainer import Apptainer
from trainmaster.containers.base import ContainerRuntime
from trainmaster.containers.none import NoContainer

NAMES = ("apptainer", "singularity", "none")


class UnknownRuntime(ValueError):
    """A name that is no container runtime; the message lists those there are."""


def container_runtime(name: str, command: str | None = None) -> ContainerRuntime:
    """The runtime called `name`; `command` replaces the program it runs (a full path). Raises UnknownRuntime."""
    if name == "none":
        return NoContainer()
    if name in ("apptainer", "singularity"):
        return Apptainer(name, command)
    raise UnknownRuntime(f"There is no container runtime {name!r}; there are {', '.join(NAMES)}.")
