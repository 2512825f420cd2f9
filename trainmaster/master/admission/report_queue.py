"""Fair queue for large reports and for jobs that reconnect after an outage.

After an hour without a master ten thousand jobs have a spool each to replay. They take turns, so that people, and the
jobs that go on as always, hardly notice them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainmaster.master.admission.fair_queue import FairQueue
from trainmaster.master.admission.request_shares import DISCONNECTED
from trainmaster.master.db.request_context import CURRENT
from trainmaster.master.services.errors import Disconnected, Unavailable

LARGE = 8 * 2**10  # bytes of a body
PLACES = 128  # a large report takes LARGE_PLACES of them, any other takes one
LARGE_PLACES = 8
PLACES_BESIDE_PEOPLE = 16
COOLDOWN_RATIO = 2.0  # beside people a place rests after a turn for so many times as long as the turn took
LONGEST_COOLDOWN = 1.0  # seconds
RECENT = 120.0  # seconds
MOST_KNOWN = 50_000  # jobs
MOST_WAITING = 500
MOST_OF_ONE = 8  # of one job
MOST_BYTES = 64 * 2**20  # of the bodies that wait
SOONEST, LATEST = 5.0, 120.0  # seconds after which a refused job is asked to come again
SMOOTHING = 0.05  # the weight of the latest turn in the mean


class ReportQueue:
    """The turns of one master. Belongs to the event loop. `present`: whether people have requests."""

    def __init__(self, present: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._present, self._clock = present, clock
        self._heard: OrderedDict[str, float] = OrderedDict()  # by job: when it was last heard; the latest at the end
        self._queue = FairQueue(lambda: self._most)
        self._of_job: Counter[str] = Counter()  # how many wait
        self._bytes = 0
        self._mean = 0.01  # seconds that a place is held for
        self._booked = 0.0  # when the last one that was refused is to come again

    @asynccontextmanager
    async def turn(self, allocation_id: str, size: int) -> AsyncIterator[None]:
        """Yield a job's report of so many bytes is taken in inside the block. Raises Unavailable when too many wait,
        TooSlow when the job has disconnected."""
        large, lately = size > LARGE, self._clock() - self._heard.get(allocation_id, -math.inf) < RECENT
        if not large and lately:
            yield
        else:
            places = LARGE_PLACES if large else 1
            # Small reports come first, then large ones of jobs that report steadily, then the others.
            await self._take(int(large) * (1 if lately else 2), allocation_id, places, size)
            began = self._clock()
            try:
                if CURRENT.get().gone:
                    raise Disconnected(DISCONNECTED)
                yield
            finally:
                self._over(places, self._clock() - began)
        self._heard[allocation_id] = self._clock()
        self._heard.move_to_end(allocation_id)
        if len(self._heard) > MOST_KNOWN:
            self._heard.popitem(last=False)

    async def _take(self, priority: int, allocation_id: str, places: int, size: int) -> None:
        if self._queue.try_enter(places):
            return
        waiting = len(self._queue)
        if waiting >= MOST_WAITING or self._bytes + size > MOST_BYTES or self._of_job[allocation_id] >= MOST_OF_ONE:
            sentence = f"{waiting} reports of jobs wait for their turn; this one is to come again later."
            raise Unavailable(sentence, retry_after=self._book(places))
        self._bytes += size
        self._of_job[allocation_id] += 1
        try:
            await self._queue.enter(None, places, priority)
        finally:
            self._bytes -= size
            self._of_job -= Counter((allocation_id,))

    @property
    def _most(self) -> int:
        return PLACES_BESIDE_PEOPLE if self._present() else PLACES

    def _over(self, places: int, took: float) -> None:
        self._mean += SMOOTHING * (took - self._mean)
        if self._present():
            rest = min(COOLDOWN_RATIO * took, LONGEST_COOLDOWN)
            asyncio.get_running_loop().call_later(rest, self._queue.leave, places)
        else:
            self._queue.leave(places)

    def _book(self, places: int) -> float:
        """Seconds until those that were refused before have had their turns, at the present rate: so each is refused
        once or twice, and not every few seconds."""
        now = self._clock()
        each = self._mean * (1 + (COOLDOWN_RATIO if self._present() else 0.0)) * places / self._most
        self._booked = min(max(self._booked, now + SOONEST) + each, now + LATEST)
        return self._booked - now
