"""Circuit breaker of a pool: opens after several jobs in a row that the cluster could not start. Pure; times are epoch
seconds.

A job counts when its cluster lost it before its runtime came up; a runtime that comes up closes the breaker. While the
breaker of a pool is open its jobs wait, one at a time is tried, and trials are charged no restart for these failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

THRESHOLD = 5  # jobs in a row
FIRST_PAUSE = 60.0  # seconds; doubled with every further failure
LONGEST_PAUSE = 1800.0
MEMORY = 86400.0  # seconds after which a failure no longer counts


@dataclass(frozen=True)
class Failure:
    """A job that its cluster could not start. `group`: its experiment."""

    at: float
    group: int
    why: str


@dataclass(frozen=True)
class PoolPause:
    """The circuit breaker is open: `failures` jobs in a row were not started; before `until` only a probe job
    starts (half-open)."""

    failures: int
    until: float
    why: str
    groups: frozenset[int]  # experiments whose jobs failed: a probe of another one tells more

    @property
    def text(self) -> str:
        return f"the cluster could not start the last {self.failures} jobs there ({self.why.rstrip('.')})"


def pool_pause(failures: Sequence[Failure], closed_at: float, now: float) -> PoolPause | None:
    """Return the open circuit breaker of a pool, else None. `closed_at`: when a runtime last came up there, or an
    administrator resumed the pool."""
    counting = [failure for failure in failures if failure.at > max(closed_at, now - MEMORY)]
    if len(counting) < THRESHOLD:
        return None
    last = max(counting, key=lambda one: one.at)
    pause = min(FIRST_PAUSE * 2 ** min(len(counting) - THRESHOLD, 10), LONGEST_PAUSE)
    return PoolPause(len(counting), last.at + pause, last.why, frozenset(one.group for one in counting))
