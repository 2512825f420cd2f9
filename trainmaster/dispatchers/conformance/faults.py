"""Faults that a plugin's author can inject into the cluster, for the suite's tests of failures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobRef

WORD = "TRANSMOGRIFYING"  # a state that no scheduler has


@dataclass(frozen=True)
class Faults:
    """Functions that inject faults. Each is optional; a test whose fault is missing is skipped with that reason.

    `away()`: inside, the cluster does not answer (its daemon is stopped). Running jobs continue.
    `unanswered()`: inside, the scheduler accepts a submit and its answer never arrives.
    `purge(ref)`: returns when the scheduler has forgotten this job, which has ended.
    `strange()`: inside, the scheduler reports the state `WORD` for every job.
    `noisy()`: inside, commands print unrelated lines (banners, warnings) before and after their answer.
    """

    away: Callable[[], AbstractContextManager[object]] | None = None
    unanswered: Callable[[], AbstractContextManager[object]] | None = None
    purge: Callable[[JobRef], None] | None = None
    strange: Callable[[], AbstractContextManager[object]] | None = None
    noisy: Callable[[], AbstractContextManager[object]] | None = None
