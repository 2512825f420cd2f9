"""Waits for changes on behalf of requests: long polls, and streams that follow new records.

A waiter checks once at the start and again after each wake-up. No wake-up is lost: when the connection over which
they come has been away, all waiters are woken (`db.engine.Listener`). So what waits costs nothing until it has news.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from trainmaster.master.services.store import Wakeups

T = TypeVar("T")

CHECK_PERIOD = 300.0  # seconds between two checks of a waiter without a wake-up: only a bug makes them necessary
NOTHING = ""  # a subject without wake-ups: its waiters check periodically


class Waiting:
    """The waits of one coroutine; made by `waiting`. It checks first, and then each time that `again` returns True."""

    def __init__(self, wakeups: Wakeups, woken: asyncio.Event, timeout: float, period: float) -> None:
        self._wakeups, self._woken, self._period = wakeups, woken, period
        self._deadline = time.monotonic() + timeout

    async def again(self) -> bool:
        """Wait for a wake-up, or for the next periodic check. False: time is over, or the master stops."""
        left = self._deadline - time.monotonic()
        if left <= 0 or self._wakeups.closed:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left, self._period)):
                await self._woken.wait()
        self.begin()
        return True

    def begin(self) -> None:
        """Mark the beginning of a check: later wake-ups cause another one. `again` does it as well."""
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()


@contextmanager
def waiting(
    wakeups: Wakeups, subject: str, *, timeout: float = math.inf, period: float = CHECK_PERIOD
) -> Iterator[Waiting]:
    """In the block wake-ups of `subject` count. `timeout`, `period`: seconds."""
    with wakeups.listening(subject) as woken:
        yield Waiting(wakeups, woken, timeout, period)


async def wait_for(wakeups: Wakeups, subject: str, look: Callable[[], Awaitable[T | None]], timeout: float) -> T | None:
    """Return the result of `look`; None when it has found nothing for `timeout` seconds."""
    with waiting(wakeups, subject, timeout=timeout) as turn:
        while True:
            answer = await look()
            if answer is not None or not await turn.again():
                return answer
