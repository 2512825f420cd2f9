"""Token buckets: how fast each of many keys may take units of something."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable


class TokenBuckets:
    """A bucket for each key, from which `rate` units a second may be taken, and `burst` seconds' worth at once.

    It remembers `most` keys, and forgets first the one that has taken nothing for longest. `clock` returns monotonic
    seconds. (The generic cell rate algorithm: a bucket is one number, the time until which what was taken lasts.)
    """

    def __init__(self, rate: float, burst: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._most, self._clock = rate, burst, most, clock
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key: Hashable, units: float = 1.0) -> float:
        """Take units, whether the bucket holds them or not. Return the seconds until what is owed is there."""
        now = self._clock()
        self._set(key, max(self._until.get(key, now), now) + units / self._rate)
        return self.owed(key)

    def try_take(self, key: Hashable, units: float = 1.0) -> bool:
        """Take units if the bucket holds them."""
        now = self._clock()
        until = max(self._until.get(key, now), now) + units / self._rate
        if until > now + self._burst:
            return False
        self._set(key, until)
        return True

    def give_back(self, key: Hashable, units: float = 1.0) -> None:
        """Return units that were taken and not used."""
        if key in self._until:
            self._until[key] -= units / self._rate

    def owed(self, key: Hashable) -> float:
        """Return the seconds until the bucket is no longer overdrawn."""
        now = self._clock()
        return max(0.0, self._until.get(key, now) - now - self._burst)

    def _set(self, key: Hashable, until: float) -> None:
        self._until[key] = until
        self._until.move_to_end(key)
        if len(self._until) > self._most:
            self._until.popitem(last=False)
