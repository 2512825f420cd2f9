"""Finds out why a job's container did not start, from the job script's captured output."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.containers import ContainerRuntime
from trainmaster.dispatchers.base import NotStarted, Remains


def explained(remains: Remains, runtime: ContainerRuntime) -> Remains:
    """Return `remains` with the reason added, if the job left no exit record and its output shows one."""
    if remains.exits or not remains.output_tail or (cause := runtime.explain(remains.output_tail)) is None:
        return remains
    return replace(remains, not_started=NotStarted(cause.text, cause.final, cause.uncharged))
