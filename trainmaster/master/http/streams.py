"""Streams of newline-delimited JSON, in the format of grpc-gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from trainmaster.config.limits import Limits
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http.dependencies import ServedMaster
from trainmaster.master.http.error_envelope import stream_error
from trainmaster.master.http.waiting import waiting
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Invalid, ServiceError

PAGE = 2000  # log lines read at once
PERIOD = 30.0  # seconds between two reads of a stream, unless the caller asks for another period


class LogPage(NamedTuple):
    """Lines of a log as they are sent, and the id of the last one."""

    content: bytes
    lines: int
    last_id: int


ReadPage = Callable[[int, int, bool], Awaitable[LogPage]]
"""Lines with ids above one, at most so many, the newest first or last."""


def line_of(message: dict[str, Any]) -> bytes:
    return json.dumps({"result": message}, separators=(",", ":")).encode() + b"\n"


async def with_errors(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream whose last line says what has ended it, if that was an error: its status has been sent long
    ago."""
    try:
        async for line in lines:
            yield line
    except (ServiceError, *DATABASE_UNAVAILABLE) as error:
        yield stream_error(error)


def period_of(limits: Limits, wanted: float) -> float:
    """Seconds between two reads of a stream whose caller wants so many; 0: as many as usual. Raises Invalid."""
    if wanted == 0:
        return max(PERIOD, limits.stream_period)
    if not wanted >= limits.stream_period:
        raise Invalid(
            f"periodSeconds: a stream is read every {limits.stream_period} s at most (limits.stream_period), not every "
            f"{wanted:g} s. Ask for more, or for 0, which means {PERIOD:g} s."
        )
    return wanted


def lines_of(messages: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (line_of(message) for message in messages)


async def log_fields(
    master: ServedMaster, caller: Caller, tasks: Sequence[str], *, follow: bool
) -> AsyncIterator[dict[str, list[Any]]]:
    """Yield the values that tasks' lines can be filtered by; with `follow` again when the last task has more."""

    def read() -> tuple[dict[str, list[Any]], bool]:
        over = master.trials.is_over(tasks[-1])
        fields: dict[str, list[Any]] = {}
        for name in tasks:
            for field, values in master.log_store.fields(name).items():
                fields[field] = sorted({*fields.get(field, ()), *values})
        return fields, over

    sent: dict[str, list[Any]] | None = None
    with waiting(master.wakeups, f"task:{tasks[-1]}") as turn:
        while True:
            names, over = await master.threads.run(caller, read)
            if names != sent:
                yield names
                sent = names
            if not follow or over or not await turn.again():
                return


async def log_pages(
    master: ServedMaster, caller: Caller, read: ReadPage, task_id: str, *, limit: int, follow: bool, newest: bool
) -> AsyncIterator[bytes]:
    """Lines, read by `read`; `follow` continues until the task is over and everything has been read."""
    last, sent = 0, 0
    with waiting(master.wakeups, f"task:{task_id}") as turn:
        while True:
            over = await master.threads.run(caller, master.trials.is_over, task_id)
            room = PAGE if limit <= 0 else min(PAGE, limit - sent)
            page = await read(last, room, newest)
            if page.lines:
                yield page.content
            sent += page.lines
            if newest or 0 < limit <= sent:
                return
            if page.lines:
                last = page.last_id
            if page.lines == room:
                continue
            # Whether it is over was checked before reading: no lines followed these.
            if not follow or over or not await turn.again():
                return
