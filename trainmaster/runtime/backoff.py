"""Exponential backoff with jitter for calls to the master."""

from __future__ import annotations

import os


class Backoff:
    """Waits that double from `first` to `ceiling` seconds, each shortened at random by up to half, so that a
    thousand jobs do not call a restarted master in the same instant."""

    def __init__(self, first: float = 0.25, ceiling: float = 10.0) -> None:
        self._first = first
        self._ceiling = ceiling
        self._next = first

    def next(self) -> float:
        """The next wait in seconds."""
        wait = self._next
        self._next = min(self._ceiling, self._next * 2)
        return wait * (0.5 + os.urandom(1)[0] / 512)

    def reset(self) -> None:
        """Start again from the first wait. To be called after a good answer."""
        self._next = self._first
