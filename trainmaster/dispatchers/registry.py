"""Finding dispatchers by the short name that a configuration uses."""

from __future__ import annotations

import difflib
import inspect
from importlib.metadata import EntryPoint, entry_points

from trainmaster.dispatchers.base import ENTRY_POINT_GROUP, Dispatcher, Rejected, Setup

_VERBS = ("probe", "pools", "check", "submit", "observe", "cancel", "signal", "explain", "collect", "forget", "close")


def installed() -> dict[str, EntryPoint]:
    """Every announced dispatcher by its short name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def make(kind: str, setup: Setup) -> Dispatcher:
    """The dispatcher called `kind`, checked against the contract.

    Raises Rejected with a sentence for the administrator: an unknown name, a plugin that cannot be imported or that
    lacks a method.
    """
    points = installed()
    if kind not in points:
        close = difflib.get_close_matches(kind, points, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join(sorted(points)) or "none; reinstall trainmaster"
        raise Rejected(f"resource_manager.type: there is no dispatcher {kind!r}.{hint} Installed: {names}.")
    point = points[kind]
    try:
        factory = point.load()
    except Exception as error:
        raise Rejected(f"The dispatcher {kind!r} ({point.value}) cannot be imported: {error}.") from error
    for verb in _VERBS:
        if not inspect.isroutine(getattr(factory, verb, None)):
            raise Rejected(
                f"The dispatcher {kind!r} ({point.value}) has no method {verb!r}; it does not fulfil "
                "trainmaster.dispatchers.base.Dispatcher. Update the plugin."
            )
    made: Dispatcher = factory(setup)
    return made
