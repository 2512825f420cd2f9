"""Streams of newline-delimited JSON, as grpc-gateway writes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from trainmaster.master.services.experiments import trials
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import Store, Wakeups

PAGE = 2000  # log lines read at once
LOOK_AGAIN = 5.0  # seconds after which a follower looks again even if nothing woke it


ReadLines = Callable[[int, int, bool], Awaitable[list[log_store.StoredLine]]]
"""Lines with ids above one, at most so many, the newest first or last."""


def line_of(message: dict[str, Any]) -> bytes:
    return json.dumps({"result": message}, separators=(",", ":")).encode() + b"\n"


def lines_of(messages: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (line_of(message) for message in messages)


async def log_fields(
    store: Store, wakeups: Wakeups, tasks: Sequence[str], *, follow: bool
) -> AsyncIterator[dict[str, list[Any]]]:
    """The values that the lines of tasks can be filtered by; `follow` says them again when the last one has more."""
    said: dict[str, list[Any]] | None = None
    with wakeups.listening(f"task:{tasks[-1]}") as woken:
        while True:
            woken.clear()
            over = await run_in_threadpool(trials.is_over, store, tasks[-1])
            found: dict[str, list[Any]] = {}
            for name in tasks:
                for field, values in (await run_in_threadpool(log_store.fields, store, name)).items():
                    found[field] = sorted({*found.get(field, ()), *values})
            if found != said:
                yield found
                said = found
            if not follow or wakeups.closed or over:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), LOOK_AGAIN)


async def log_lines(
    read: ReadLines, store: Store, wakeups: Wakeups, task_id: str, *, limit: int, follow: bool, newest: bool
) -> AsyncIterator[log_store.StoredLine]:
    """Lines, read by `read`; `follow` goes on until the task is over and everything has been read."""
    last, sent = 0, 0
    with wakeups.listening(f"task:{task_id}") as woken:
        while True:
            woken.clear()
            over = await run_in_threadpool(trials.is_over, store, task_id)
            room = PAGE if limit <= 0 else min(PAGE, limit - sent)
            lines = await read(last, room, newest)
            for line in lines:
                yield line
            sent += len(lines)
            if newest or 0 < limit <= sent:
                return
            if lines:
                last = lines[-1].id
            if len(lines) == room:
                continue
            if not follow or wakeups.closed or over:  # asked before reading: nothing came after these lines
                return
            try:
                await asyncio.wait_for(woken.wait(), LOOK_AGAIN)
            except TimeoutError:
                continue
