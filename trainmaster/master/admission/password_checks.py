"""Decides which password is checked next. A check takes 64 MiB and a core for a twentieth of a second: few at once.

Known clients, which show a mark of an earlier log-in or come from where their user has logged in, never wait for
strangers. Among the known, users take turns; among strangers, networks do: whoever sends many waits for himself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from trainmaster.master.services.errors import Busy

AT_ONCE = 2  # checks of known clients, and as many of strangers
MOST_WAITING = 100  # of one user, or of one network


class PasswordChecks:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._known, self._strangers = _Waiters(), _Waiters()

    @asynccontextmanager
    async def turn(self, who: Hashable, *, known: bool) -> AsyncIterator[None]:
        """In the block a password may be checked. `who`: the user of a known client, the network of a stranger. Raises
        Busy."""
        queue = self._known if known else self._strangers
        await queue.enter(who)
        try:
            yield
        finally:
            queue.leave()


class _Waiters:
    def __init__(self) -> None:
        self._busy = 0
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()  # the next one first

    async def enter(self, who: Hashable) -> None:
        if self._busy < AT_ONCE:
            self._busy += 1
            return
        queue = self._queues.setdefault(who, deque())
        if len(queue) >= MOST_WAITING:
            raise Busy("Too many log-ins from your network wait already; try again in a moment.")
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # the place was handed over at this moment
                self.leave()
            raise
        finally:
            with contextlib.suppress(ValueError):
                queue.remove(turn)
            if not queue and self._queues.get(who) is queue:
                del self._queues[who]

    def leave(self) -> None:
        """Hands the place to the next one in rotation."""
        while self._queues:
            who, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(who)
            turn = queue.popleft()
            if not queue:
                del self._queues[who]
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1
