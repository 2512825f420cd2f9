"""A fair queue: places for which keys take turns, so that the one with many waiters delays only itself."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

CHECK_PERIOD = 0.25  # seconds between a waiter's checks
LONGEST_CHECK = 2.0  # the same once it has waited long


class _Waiter(NamedTuple):
    weight: int
    turn: asyncio.Future[None]


class FairQueue:
    """Hands out `places`, to lower priorities first, and within one priority to one key after the other. Belongs to
    the event loop."""

    def __init__(self, places: Callable[[], int]) -> None:
        self._places = places
        self._held = 0
        self._waiting: dict[int, OrderedDict[Hashable, deque[_Waiter]]] = {}  # by priority and key, the next key first

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(len(waiters) for keys in self._waiting.values() for waiters in keys.values())

    @property
    def idle(self) -> bool:
        """Whether no place is held."""
        return not self._held

    def waiting(self, key: Hashable, priority: int = 0) -> int:
        """Return how many of a key wait."""
        keys = self._waiting.get(priority)
        return len(keys[key]) if keys and key in keys else 0

    def try_enter(self, weight: int = 1) -> bool:
        """Take `weight` places if they are free and nobody waits."""
        if self._waiting or not self._fits(weight):
            return False
        self._held += weight
        return True

    async def enter(
        self, key: Hashable, weight: int = 1, priority: int = 0, check: Callable[[], None] | None = None
    ) -> None:
        """Wait for `weight` places. `check` is called now and then; what it raises ends the waiting."""
        waiter = _Waiter(weight, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(priority, OrderedDict()).setdefault(key, deque()).append(waiter)
        try:
            period = CHECK_PERIOD if check else None
            while not waiter.turn.done():
                if check is not None:
                    check()
                await asyncio.wait([waiter.turn], timeout=period)
                period = period and min(2 * period, LONGEST_CHECK)
        except BaseException:
            if waiter.turn.done():  # the places were handed over at this moment
                self.leave(weight)
            else:
                self._forget(priority, key, waiter)
                self._hand_over()
            raise

    def leave(self, weight: int = 1) -> None:
        """Give places back; the next waiters get them."""
        self._held -= weight
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting:
            priority = min(self._waiting)
            key, waiters = next(iter(self._waiting[priority].items()))
            waiter = waiters[0]
            if not self._fits(waiter.weight):
                return
            self._waiting[priority].move_to_end(key)
            self._forget(priority, key, waiter)
            self._held += waiter.weight
            waiter.turn.set_result(None)

    def _fits(self, weight: int) -> bool:
        return self._held + weight <= self._places()

    def _forget(self, priority: int, key: Hashable, waiter: _Waiter) -> None:
        keys = self._waiting[priority]
        keys[key].remove(waiter)
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._waiting[priority]
