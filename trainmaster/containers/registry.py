"""Container runtimes by the name that the administrator's configuration uses: ours and those of plugins."""

from __future__ import annotations

import difflib
import inspect
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trainmaster.containers.base import ENTRY_POINT_GROUP, VERBS, ContainerRuntime


class UnknownRuntime(ValueError):
    """A name that is no container runtime, or one of a plugin that is none; the message says what to do."""


def installed() -> dict[str, EntryPoint]:
    """Every announced container runtime by its name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def container_runtime(name: str, command: str | None = None) -> ContainerRuntime:
    """The runtime called `name`; `command` replaces the program it runs (a full path). Raises UnknownRuntime."""
    made: ContainerRuntime = _factory(name)(command)
    return made


@cache
def _factory(name: str) -> Any:
    """Checked against the contract. Raises UnknownRuntime, and looks again when it is asked again."""
    points = installed()
    if name not in points:
        close = difflib.get_close_matches(name, points, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join(sorted(points)) or "none; reinstall trainmaster"
        raise UnknownRuntime(f"There is no container runtime {name!r}.{hint} Installed: {names}.")
    point = points[name]
    try:
        factory = point.load()
    except Exception as error:
        raise UnknownRuntime(
            f"The container runtime {name!r} ({point.value}) cannot be imported: {error}. Reinstall the plugin."
        ) from error
    for verb in VERBS:
        if not inspect.isroutine(getattr(factory, verb, None)):
            raise UnknownRuntime(
                f"The container runtime {name!r} ({point.value}) has no method {verb!r}; it does not fulfil "
                "trainmaster.containers.base.ContainerRuntime. Update the plugin."
            )
    return factory
