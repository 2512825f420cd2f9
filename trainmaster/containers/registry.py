"""Creates the container runtime that the administrator's configuration names: a built-in one or a plugin."""

from __future__ import annotations

from trainmaster import plugins
from trainmaster.containers.base import ContainerRuntime


class UnknownRuntime(ValueError):
    """No container runtime has this name, or its plugin is invalid; the message says how to fix it."""


def container_runtime(name: str, command: str | None = None) -> ContainerRuntime:
    """Return the runtime called `name`; `command` replaces the program it runs (a full path). Raises UnknownRuntime."""
    try:
        made: ContainerRuntime = plugins.load(plugins.CONTAINERS, name)(command)
    except plugins.PluginError as error:
        raise UnknownRuntime(str(error)) from None
    return made
