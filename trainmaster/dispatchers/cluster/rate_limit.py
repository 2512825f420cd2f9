"""Limits the rate of calls to a scheduler, because schedulers have rate limits of their own."""

from __future__ import annotations

import threading
import time


class TokenBucket:
    """Lets at most `rate` calls a second through, after a first burst. Threads wait their turn."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._level = float(burst)
        self._stamp = time.monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when the next call may be made."""
        with self._lock:
            now = time.monotonic()
            self._level = min(self._burst, self._level + (now - self._stamp) * self._rate)
            self._stamp = now
            self._level -= 1
            pause = -self._level / self._rate if self._level < 0 else 0.0
        if pause:
            time.sleep(pause)
