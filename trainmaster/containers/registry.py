"""Makes the container runtime that the administrator's configuration names: one of ours or a plugin's."""

from __future__ import annotations

from trainmaster import plugins
from trainmaster.containers.base import ContainerRuntime


class UnknownRuntime(ValueError):
    """A name that is no container runtime, or one of a plugin that is none; the message says what to do."""


def container_runtime(name: str, command: str | None = None) -> ContainerRuntime:
    """The runtime called `name`; `command` replaces the program it runs (a full path). Raises UnknownRuntime."""
    try:
        made: ContainerRuntime = plugins.load(plugins.CONTAINERS, name)(command)
    except plugins.PluginError as error:
        raise UnknownRuntime(str(error)) from None
    return made
