"""Streams of newline-delimited JSON, in the format of grpc-gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from trainmaster.master.api.waiting import waiting
from trainmaster.master.services.experiments import trials
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import Store, Wakeups

PAGE = 2000  # log lines read at once

ReadLines = Callable[[int, int, bool], Awaitable[list[log_store.StoredLine]]]
"""Lines with ids above one, at most so many, the newest first or last."""


def line_of(message: dict[str, Any]) -> bytes:
    return json.dumps({"result": message}, separators=(",", ":")).encode() + b"\n"


def lines_of(messages: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (line_of(message) for message in messages)


async def log_fields(
    store: Store, wakeups: Wakeups, tasks: Sequence[str], *, follow: bool
) -> AsyncIterator[dict[str, list[Any]]]:
    """The values that tasks' lines can be filtered by; with `follow` again when the last task has more."""
    said: dict[str, list[Any]] | None = None
    with waiting(wakeups, f"task:{tasks[-1]}") as turn:
        while True:
            over = await run_in_threadpool(trials.is_over, store, tasks[-1])
            found: dict[str, list[Any]] = {}
            for name in tasks:
                for field, values in (await run_in_threadpool(log_store.fields, store, name)).items():
                    found[field] = sorted({*found.get(field, ()), *values})
            if found != said:
                yield found
                said = found
            if not follow or over or not await turn.again():
                return


async def log_lines(
    read: ReadLines, store: Store, wakeups: Wakeups, task_id: str, *, limit: int, follow: bool, newest: bool
) -> AsyncIterator[log_store.StoredLine]:
    """Lines, read by `read`; `follow` continues until the task is over and everything has been read."""
    last, sent = 0, 0
    with waiting(wakeups, f"task:{task_id}") as turn:
        while True:
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
            # Whether it is over was checked before reading: no lines followed these.
            if not follow or over or not await turn.again():
                return
