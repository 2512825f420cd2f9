"""Closes long-lived responses (followed logs, proxied connections, shells) when their session or user becomes invalid.

One database query serves all of them: every few seconds, and as soon as sessions change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http.waiting import waiting
from trainmaster.master.services.access import identity
from trainmaster.master.services.master import Master
from trainmaster.master.services.store import Flag

log = logging.getLogger(__name__)

PERIOD = 10.0  # seconds between two checks without a wake-up
PAUSE = 0.2  # debounce, in seconds
SCOPE_KEY = "trainmaster.behind"  # in a request's scope: the user or job behind it


class Behind(NamedTuple):
    """The user or job that a connection is open for. `session_id`: None where a service admits anybody with its key,
    `user_id` being the task's owner, and where a program acts as the user from `inside` an attempt's job."""

    user_id: int
    session_id: int | None = None
    inside: str | None = None


class Guard:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._open: dict[Behind, set[Flag]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, behind: Behind) -> Iterator[asyncio.Event]:
        """Inside the block the event is set once the user or job behind the connection is no longer valid."""
        ended = asyncio.Event()
        with self.telling(behind, ended):
            yield ended

    @contextmanager
    def telling(self, behind: Behind, ended: Flag) -> Iterator[None]:
        """Yield the same with a flag of the caller's."""
        self._open.setdefault(behind, set()).add(ended)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._open[behind].discard(ended)
            if not self._open[behind]:
                del self._open[behind]

    async def _run(self) -> None:
        """Run as long as any connection is watched."""
        with waiting(self._master.wakeups, identity.SESSIONS, period=PERIOD) as turn:
            while self._open and not self._master.wakeups.closed:
                turn.begin()
                try:
                    await self._look()
                except DATABASE_UNAVAILABLE:
                    pass  # unknown: connections stay open until the database answers
                except Exception:  # the next check may succeed; without one no connection would ever be closed
                    log.exception("could not check whether sessions are still valid")
                await turn.again()
                await asyncio.sleep(PAUSE)

    async def _look(self) -> None:
        asked = list(self._open)
        sessions = {behind.session_id for behind in asked if behind.session_id is not None}
        users = {behind.user_id for behind in asked}
        attempts = {behind.inside for behind in asked if behind.inside is not None}
        alive = await run_in_threadpool(self._master.identities.valid_credentials, sessions, users, attempts)
        for behind in asked:
            lasts = behind.session_id is None or behind.session_id in alive.sessions
            if lasts and behind.user_id in alive.users and (behind.inside is None or behind.inside in alive.attempts):
                continue
            for ended in self._open.get(behind, ()):
                ended.set()
