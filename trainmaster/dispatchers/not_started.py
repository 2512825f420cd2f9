"""Why a job's container did not start, read from what the scheduler captured of its job script."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.containers import ContainerRuntime
from trainmaster.dispatchers.base import NotStarted, Remains


def explained(remains: Remains, runtime: ContainerRuntime) -> Remains:
    """The same, with the reason where the job left no word of its own and its output says it."""
    if remains.exits or not remains.output_tail or (cause := runtime.explain(remains.output_tail)) is None:
        return remains
    return replace(remains, not_started=NotStarted(cause.text, cause.final))
