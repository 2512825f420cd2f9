"""What a plugin's author can do to the cluster, so that the suite can test the bad days too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobRef

WORD = "TRANSMOGRIFYING"  # no scheduler says so


@dataclass(frozen=True)
class Faults:
    """Each is optional; a test whose fault is missing is skipped and says so.

    `away()`: inside, the cluster cannot be asked (its daemon is stopped). Running jobs go on.
    `unanswered()`: inside, a submit is taken by the scheduler and its answer never arrives.
    `purge(ref)`: returns when the scheduler has forgotten this job, which has ended.
    `strange()`: inside, the scheduler says `WORD` of every job's state.
    `noisy()`: inside, commands print lines that are not theirs (banners, warnings) before and after their answer.
    """

    away: Callable[[], AbstractContextManager[object]] | None = None
    unanswered: Callable[[], AbstractContextManager[object]] | None = None
    purge: Callable[[JobRef], None] | None = None
    strange: Callable[[], AbstractContextManager[object]] | None = None
    noisy: Callable[[], AbstractContextManager[object]] | None = None
