"""Lets reports that cost much, or that come from jobs not heard of lately, in by turns.

After an hour without a master ten thousand jobs have a spool each to replay. They take turns, so that people, and the
jobs that go on as always, hardly notice them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trainmaster.master.services.errors import Unavailable

LARGE = 8 * 2**10  # bytes of a body that count as much
PLACES = 128  # at the same time; a large report takes LARGE_PLACES of them
LARGE_PLACES = 8
PLACES_BESIDE_PEOPLE = 16
REST = 1.0  # beside people a place rests after a turn for so many times as long as the turn took
LONGEST_REST = 1.0  # seconds
LATELY = 120.0  # seconds
MOST_KNOWN = 50_000  # jobs
MOST_WAITING = 500
MOST_BYTES = 64 * 2**20  # of the bodies that wait
SOONEST, LATEST = 5.0, 120.0  # seconds after which a refused job is asked to come again
SMOOTHING = 0.05  # the weight of the latest turn in the mean


class ReportTurns:
    """The turns of one master. Belongs to the event loop. `present`: whether people have requests."""

    def __init__(self, present: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._present, self._clock = present, clock
        self._heard: OrderedDict[str, float] = (
            OrderedDict()
        )  # jobs and when they were last heard, the latest at the end
        self._held = 0  # places
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()  # places, bytes
        self._bytes = 0
        self._mean = 0.01  # seconds that a place is held for
        self._booked = 0.0  # when the last one that was refused is to come again

    @asynccontextmanager
    async def turn(self, allocation_id: str, size: int) -> AsyncIterator[None]:
        """A report of so many bytes is taken in inside the block. Raises Unavailable when too many wait."""
        if size <= LARGE and self._clock() - self._heard.get(allocation_id, -math.inf) < LATELY:
            yield
        else:
            places = 1 if size <= LARGE else LARGE_PLACES
            await self._take(places, size)
            began = self._clock()
            try:
                yield
            finally:
                self._over(places, self._clock() - began)
        self._heard[allocation_id] = self._clock()
        self._heard.move_to_end(allocation_id)
        if len(self._heard) > MOST_KNOWN:
            self._heard.popitem(last=False)

    async def _take(self, places: int, size: int) -> None:
        if not self._waiting and self._fits(places):
            self._held += places
            return
        if len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_BYTES:
            raise Unavailable(
                "Many jobs report at the same time, and wait for their turn.", retry_after=self._book(places)
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((places, size, turn))
        self._bytes += size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the places were handed over at this moment
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
        self._held -= places
        while self._waiting and (self._waiting[0][2].done() or self._fits(self._waiting[0][0])):
            wanted, size, turn = self._waiting.popleft()
            self._bytes -= size
            if not turn.done():  # its caller was cancelled
                self._held += wanted
                turn.set_result(None)

    def _book(self, places: int) -> float:
        """Seconds until those that were refused before have had their turns, at the present rate: so each is refused
        once or twice, and not every few seconds."""
        now = self._clock()
        each = self._mean * (1 + (REST if self._present() else 0.0)) * places / self._most
        self._booked = min(max(self._booked, now + SOONEST) + each, now + LATEST)
        return self._booked - now
