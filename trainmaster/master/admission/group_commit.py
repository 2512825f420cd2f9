"""Group commit: calls that arrive while a transaction is under way share the next one.

A commit waits for the disk, and each statement for the network. When many jobs call at the same time, one transaction
for all of them costs little more than one for each. So after the start of a batch the next one collects calls for a
moment; a call that comes alone starts at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from trainmaster.master.db.request_context import CURRENT, RequestContext
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.services.batches import BatchHandler, CannotBatch
from trainmaster.master.services.errors import Unavailable

C = TypeVar("C")
R = TypeVar("R")

BATCHES = 2  # Python prepares one while the database works for the other
MOST_TOGETHER = 64  # calls in one batch
# Seconds between the starts of two batches, unless one is full: 330 reports a second, as of 10,000 jobs, make 50
# transactions, which cost half of what 330 do.
PAUSE = 0.02
MOST_PENDING = 4096  # calls without an answer; connections have limits of their own


class _Pending(NamedTuple, Generic[C, R]):
    call: C
    answer: asyncio.Future[R]


class GroupCommit(Generic[C, R]):
    """Collects the calls of one kind and runs `take` on them in threads. Belongs to the event loop.

    `take` gets calls of different `key`s, does not wait, and gives the outcome of each: a result, or the error that its
    caller is to get. An error that `take` raises fails the whole batch: each of its calls is then taken in by itself,
    so that nobody's fault is another's. So `take` must be repeatable: it leaves nothing behind when it raises, or what
    it leaves may happen twice. While the database is away nothing is repeated; all callers get that error.

    A caller that is cancelled while it waits for a batch is left out of it. `alone`: threads for calls that are taken
    in by themselves. `seconds`: for each statement. `batches`: how many are worked on at the same time. `together`:
    calls in one batch. `pending`: calls without an answer, above which further ones are refused.
    """

    def __init__(
        self,
        take: BatchHandler[C, R],
        key: Callable[[C], Hashable],
        alone: Executor,
        seconds: float,
        batches: int = BATCHES,
        *,
        together: int = MOST_TOGETHER,
        pending: int = MOST_PENDING,
    ) -> None:
        self._take, self._key, self._alone, self._seconds = take, key, alone, seconds
        self._threads = ThreadPoolExecutor(batches, "group-commit")
        self._waiting: deque[_Pending[C, R]] = deque()
        self._free = batches
        self._next_start = 0.0  # of the event loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._together, self._most = together, pending
        self._pending = 0

    async def ask(self, call: C) -> R:
        """Return the call's result. Raises its error, and Unavailable when too many calls wait."""
        if self._pending >= self._most:
            raise Unavailable(f"{self._most} calls of jobs wait already; try again in a moment.")
        pending: _Pending[C, R] = _Pending(call, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        self._pending += 1
        try:
            self._start()
            return await pending.answer
        finally:
            self._pending -= 1

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._free and self._waiting:
            if loop.time() < self._next_start and len(self._waiting) < self._together:
                self._timer = self._timer or loop.call_at(self._next_start, self._on_time)
                return
            if not (batch := self._next()):
                return
            self._next_start = loop.time() + PAUSE
            self._free -= 1
            self._run(self._threads, batch, False, self._batch_done)

    def _on_time(self) -> None:
        self._timer = None
        self._start()

    def _next(self) -> list[_Pending[C, R]]:
        batch: dict[Hashable, _Pending[C, R]] = {}
        later: list[_Pending[C, R]] = []
        while self._waiting and len(batch) < self._together:
            pending = self._waiting.popleft()
            # The later of two calls of one key may build on the earlier one.
            if not pending.answer.done() and batch.setdefault(self._key(pending.call), pending) is not pending:
                later.append(pending)
        self._waiting.extendleft(reversed(later))
        return list(batch.values())

    def _run(
        self,
        threads: Executor,
        batch: Sequence[_Pending[C, R]],
        wait: bool,
        done: Callable[[Sequence[_Pending[C, R]], asyncio.Future[Sequence[R | Exception]]], Any],
    ) -> None:
        calls = [pending.call for pending in batch]
        future = asyncio.get_running_loop().run_in_executor(threads, self._taken, calls, wait)
        future.add_done_callback(partial(done, batch))

    def _taken(self, calls: Sequence[C], wait: bool) -> Sequence[R | Exception]:
        CURRENT.set(RequestContext(self._seconds))
        try:
            return self._take(calls, wait=wait)
        except DATABASE_UNAVAILABLE as error:
            return [error] * len(calls)
        except Exception as error:
            return [CannotBatch() if len(calls) > 1 else error] * len(calls)

    def _batch_done(self, batch: Sequence[_Pending[C, R]], done: asyncio.Future[Sequence[R | Exception]]) -> None:
        self._free += 1
        self._start()
        for pending in self._settle(batch, done):
            self._run(self._alone, [pending], True, self._settle)

    def _settle(
        self, batch: Sequence[_Pending[C, R]], done: asyncio.Future[Sequence[R | Exception]]
    ) -> list[_Pending[C, R]]:
        """Return those that have to be alone."""
        alone = []
        for pending, outcome in zip(batch, done.result(), strict=True):
            if pending.answer.done():  # its caller was cancelled
                continue
            if isinstance(outcome, CannotBatch):
                alone.append(pending)
            elif isinstance(outcome, Exception):
                pending.answer.set_exception(outcome)
            else:
                pending.answer.set_result(outcome)
        return alone
