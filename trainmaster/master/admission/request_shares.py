"""Limits how many requests of one user the master works on at the same time; further ones wait for these.

The master has forty threads for requests and as many connections to its database. Without limits, forty slow requests
of one user block everybody. It also has one interpreter: a user who has kept it busy for long waits while others
have requests, so that in the long run the work for one user takes a USER_SHARE of its time, request by request.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from itertools import islice

from trainmaster.master.admission.fair_queue import CHECK_PERIOD, FairQueue
from trainmaster.master.admission.token_buckets import TokenBuckets
from trainmaster.master.db.request_context import BACKGROUND, CURRENT
from trainmaster.master.services.errors import Busy, Disconnected, Unavailable

USER_SHARE = 1 / 3
FREE = 0.5  # processor seconds that cause no wait
LONGEST_REST = 5.0
REFUSED_AFTER = 1.0  # seconds: clients that are refused at once ask again at once
PRESENCE_WINDOW = 3.0  # seconds after a request for which its user counts as present
MOST_KNOWN = 10_000
DISCONNECTED = "The client disconnected."


class Shares:
    """Belongs to the event loop. `waiting`: how many of one key may wait."""

    def __init__(self, waiting: int) -> None:
        self._most_waiting = waiting
        self._work = TokenBuckets(USER_SHARE, FREE / USER_SHARE, MOST_KNOWN)  # processor seconds of each user
        self._seen: OrderedDict[Hashable, float] = OrderedDict()  # when users were last present, the latest at the end
        self._closed = False
        self._queues: dict[Hashable, FairQueue] = {}

    @asynccontextmanager
    async def one_of(
        self, key: tuple[Hashable, Hashable], most: int, limit: str, *, patient: bool = False
    ) -> AsyncIterator[None]:
        """Hold one of `most` places of `key`, a user (or a job) and a purpose, in the block, and count the block's
        work as the user's. `limit` names the configuration's key.

        Raises Busy when too many wait already, unless it is `patient`; TooSlow when the client has disconnected."""
        async with self.place(key, most, limit, patient=patient):
            context = CURRENT.get()
            if context.counted:
                yield
                return
            async with self._counted(key):
                if context.gone:
                    raise Disconnected(DISCONNECTED)
                context.counted = context is not BACKGROUND
                try:
                    yield
                finally:
                    context.counted = False

    @asynccontextmanager
    async def place(self, key: Hashable, most: int, limit: str, *, patient: bool = False) -> AsyncIterator[None]:
        """Like `one_of`, without counting the block's work."""
        queue = self._queues.setdefault(key, FairQueue(lambda: most))
        try:
            if not queue.try_enter():
                await self._wait(queue, limit, patient=patient)
            try:
                yield
            finally:
                queue.leave()
        finally:
            if queue.idle:
                self._queues.pop(key, None)

    @asynccontextmanager
    async def _counted(self, key: tuple[Hashable, Hashable]) -> AsyncIterator[None]:
        """Count the block's work as the user's. A user with a debt waits before it, one request of a kind after the
        other."""
        user = key[0]
        async with contextlib.AsyncExitStack() as until_over:
            if not self._alone(user) and self._work.owed(user):
                await until_over.enter_async_context(self._after_a_rest(user, key, patient=True))
            try:
                yield
            finally:
                context = CURRENT.get()
                self.charge(user, context.worked)
                context.worked = 0.0  # a stream is counted look by look

    async def rest(self, user: Hashable) -> None:
        """Wait, before a large body of a user is received, until the user has no debt."""
        if not self._alone(user) and self._work.owed(user):
            async with self._after_a_rest(user, (user, "body"), patient=False):
                pass

    def charge(self, user: Hashable, seconds: float) -> None:
        """Count processor seconds as the user's."""
        self._work.take(user, seconds)

    def anybody(self) -> bool:
        """Whether a user is present."""
        latest = next(reversed(self._seen.values()), -math.inf)
        return time.monotonic() - latest <= PRESENCE_WINDOW

    def _alone(self, user: Hashable) -> bool:
        """Whether no other user is present. Notes that this user is."""
        at = time.monotonic()
        alone = all(
            name == user or at - last > PRESENCE_WINDOW for name, last in islice(reversed(self._seen.items()), 2)
        )
        self._seen[user] = at
        self._seen.move_to_end(user)
        if len(self._seen) > MOST_KNOWN:
            self._seen.popitem(last=False)
        return alone

    @asynccontextmanager
    async def _after_a_rest(
        self, user: Hashable, kind: tuple[Hashable, Hashable], *, patient: bool
    ) -> AsyncIterator[None]:
        """Wait until this user's debt is paid, one request of a kind at a time."""
        async with self.place((*kind, "debt"), 1, "share", patient=patient):
            until = time.monotonic() + min(self._work.owed(user), LONGEST_REST)
            while (left := until - time.monotonic()) > 0:
                self._check()
                await asyncio.sleep(min(left, CHECK_PERIOD))
            yield

    def close(self) -> None:
        """End all waits: the master is stopping."""
        self._closed = True

    def _check(self) -> None:
        """Raise the error that ends the waiting."""
        if self._closed:
            raise Unavailable("The master is stopping; try again in a moment.")
        if CURRENT.get().gone:
            raise Disconnected(DISCONNECTED)

    async def _wait(self, queue: FairQueue, limit: str, *, patient: bool) -> None:
        if not patient and len(queue) >= self._most_waiting:
            await asyncio.sleep(REFUSED_AFTER)
            raise Busy(
                f"{len(queue)} requests of yours wait already, and no more may (limits.waiting): of one user only "
                f"limits.{limit} are worked on at a time. Send them one after the other."
            )
        await queue.enter(None, check=self._check)
