"""How long to wait before asking again."""

from __future__ import annotations


class Backoff:
    """Waits that double from `first` to `ceiling` seconds, each shortened at random by up to half, so that a
    thousand jobs do not come back to a restarted master in the same instant."""

    def __init__(self, first: float = 0.25, ceiling: float = 10.0) -> None:
        self._first = first
        self._ceiling = ceiling
        self._next = first

    def next(self) -> float:
        """The next wait in seconds."""
        import random  # most jobs never wait

        wait = self._next
        self._next = min(self._ceiling, self._next * 2)
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        """Call after a good answer."""
        self._next = self._first
