"""Exponential backoff with jitter for calls to the master."""

from __future__ import annotations

import os
import time
from typing import Callable, Optional

_SHARE_OF_ABSENCE = 20  # a wait is at most one of so many parts of the time that the master has been away
_LONGEST = 60.0  # seconds


class Backoff:
    """Waits that double from `first` to `ceiling` seconds, each shortened at random by up to half, so that a
    thousand jobs do not call a restarted master in the same instant.

    When the master has been away for long, waits grow further: ten thousand jobs that come back after an hour
    spread over a minute.
    """

    def __init__(self, first: float = 0.25, ceiling: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._first = first
        self._ceiling = ceiling
        self._clock = clock
        self._next = first
        self._since: Optional[float] = None  # the first failure

    def next(self, asked: Optional[float] = None) -> float:
        """Return the next wait in seconds. `asked`: what the master asked for (Retry-After); the wait is as long, and
        up to a quarter longer."""
        now = self._clock()
        if self._since is None:
            self._since = now
        random = os.urandom(1)[0] / 256
        wait = self._next
        absence = min(_LONGEST, (now - self._since) / _SHARE_OF_ABSENCE)
        self._next = min(max(self._ceiling, absence), wait * 2)
        own = wait * (0.5 + random / 2)
        return own if asked is None else max(own, asked * (1 + random / 4))

    def reset(self) -> None:
        """Start again from the first wait. To be called after a good answer."""
        self._next, self._since = self._first, None
