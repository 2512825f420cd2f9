"""A fair share for everybody: so many requests of one user are worked on at a time, and more of them wait for these.

The master has forty threads for requests and as many connections to its database. Without shares one user's forty slow
requests are everybody's wait.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from trainmaster.master.db.errand import ERRAND
from trainmaster.master.services.errors import Busy, TooSlow

GONE = "Whoever asked this has gone."


class Shares:
    """Belongs to the event loop. `waiting`: how many of one key may wait."""

    def __init__(self, waiting: int) -> None:
        self._most_waiting = waiting
        self._held: dict[Hashable, int] = defaultdict(int)
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def one_of(self, key: Hashable, most: int, limit: str) -> AsyncIterator[None]:
        """In the block one of `most` places of `key` is held. `limit` names the configuration's key.

        Raises Busy when too many wait already, TooSlow when nobody waits for the answer any more."""
        if self._held[key] >= most:
            await self._turn(key, limit)
        else:
            self._held[key] += 1
        try:
            if ERRAND.get().gone:
                raise TooSlow(GONE)
            yield
        finally:
            self._leave(key)

    async def _turn(self, key: Hashable, limit: str) -> None:
        queue = self._queues.setdefault(key, deque())
        if len(queue) >= self._most_waiting:
            raise Busy(
                f"{len(queue)} requests of yours wait already, and no more may (limits.waiting): of one user only "
                f"limits.{limit} are worked on at a time. Send them one after the other."
            )
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place was given at this very moment
                self._leave(key)
            raise

    def _leave(self, key: Hashable) -> None:
        """Hand the place to whoever waits longest."""
        queue = self._queues.get(key, deque())
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._queues.pop(key, None)
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
