"""Lets reports that cost much, or that come from jobs not heard of lately, in by turns.

After an hour without a master ten thousand jobs have a spool each to replay. They take turns, so that people, and the
jobs that go on as always, hardly notice them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from trainmaster.master.admission.request_shares import GONE
from trainmaster.master.db.request_context import CURRENT
from trainmaster.master.services.errors import Disconnected, Unavailable

LARGE = 8 * 2**10  # bytes of a body
PLACES = 128  # a large report takes LARGE_PLACES of them, any other takes one
LARGE_PLACES = 8
PLACES_BESIDE_PEOPLE = 16
REST = 2.0  # beside people a place rests after a turn for so many times as long as the turn took
LONGEST_REST = 1.0  # seconds
LATELY = 120.0  # seconds
MOST_KNOWN = 50_000  # jobs
MOST_WAITING = 500
MOST_OF_ONE = 8  # of one job
MOST_BYTES = 64 * 2**20  # of the bodies that wait
SOONEST, LATEST = 5.0, 120.0  # seconds after which a refused job is asked to come again
SMOOTHING = 0.05  # the weight of the latest turn in the mean


class _Waiter(NamedTuple):
    allocation_id: str
    places: int
    size: int
    turn: asyncio.Future[None]


class ReportTurns:
    """The turns of one master. Belongs to the event loop. `present`: whether people have requests."""

    def __init__(self, present: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._present, self._clock = present, clock
        self._heard: OrderedDict[str, float] = OrderedDict()  # by job: when it was last heard; the latest at the end
        self._held = 0  # places
        # Those that are served first come first: small reports, large ones of jobs that go on as always, the others.
        self._queues: tuple[deque[_Waiter], ...] = (deque(), deque(), deque())
        self._of_job: Counter[str] = Counter()  # how many wait
        self._bytes = 0
        self._mean = 0.01  # seconds that a place is held for
        self._booked = 0.0  # when the last one that was refused is to come again

    @asynccontextmanager
    async def turn(self, allocation_id: str, size: int) -> AsyncIterator[None]:
        """A job's report of so many bytes is taken in inside the block. Raises Unavailable when too many wait, TooSlow
        when the job has disconnected."""
        large, lately = size > LARGE, self._clock() - self._heard.get(allocation_id, -math.inf) < LATELY
        if not large and lately:
            yield
        else:
            places = LARGE_PLACES if large else 1
            await self._take(self._queues[int(large) * (1 if lately else 2)], allocation_id, places, size)
            began = self._clock()
            try:
                if CURRENT.get().gone:
                    raise Disconnected(GONE)
                yield
            finally:
                self._over(places, self._clock() - began)
        self._heard[allocation_id] = self._clock()
        self._heard.move_to_end(allocation_id)
        if len(self._heard) > MOST_KNOWN:
            self._heard.popitem(last=False)

    async def _take(self, queue: deque[_Waiter], allocation_id: str, places: int, size: int) -> None:
        if not any(self._queues) and self._fits(places):
            self._held += places
            return
        waiting = sum(map(len, self._queues))
        if waiting >= MOST_WAITING or self._bytes + size > MOST_BYTES or self._of_job[allocation_id] >= MOST_OF_ONE:
            sentence = f"{waiting} reports of jobs wait for their turn; this one is to come again later."
            raise Unavailable(sentence, retry_after=self._book(places))
        waiter = _Waiter(allocation_id, places, size, asyncio.get_running_loop().create_future())
        queue.append(waiter)
        self._bytes += size
        self._of_job[allocation_id] += 1
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():  # the places were handed over at this moment
                self._free(places)
            raise

    def _fits(self, places: int) -> bool:
        return self._held + places <= self._most

    @property
    def _most(self) -> int:
        return PLACES_BESIDE_PEOPLE if self._present() else PLACES

    def _over(self, places: int, took: float) -> None:
        self._mean += SMOOTHING * (took - self._mean)
        if self._present():
            rest = min(REST * took, LONGEST_REST)
            asyncio.get_running_loop().call_later(rest, self._free, places)
        else:
            self._free(places)

    def _free(self, places: int) -> None:
        """Hands places on."""
        self._held -= places
        while queue := next(filter(None, self._queues), None):
            if not queue[0].turn.done() and not self._fits(queue[0].places):
                return
            waiter = queue.popleft()
            self._bytes -= waiter.size
            self._of_job[waiter.allocation_id] -= 1
            if not self._of_job[waiter.allocation_id]:
                del self._of_job[waiter.allocation_id]
            if not waiter.turn.done():  # its caller was cancelled
                self._held += waiter.places
                waiter.turn.set_result(None)

    def _book(self, places: int) -> float:
        """Seconds until those that were refused before have had their turns, at the present rate: so each is refused
        once or twice, and not every few seconds."""
        now = self._clock()
        each = self._mean * (1 + (REST if self._present() else 0.0)) * places / self._most
        self._booked = min(max(self._booked, now + SOONEST) + each, now + LATEST)
        return self._booked - now
