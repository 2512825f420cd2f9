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
SCOPE_KEY = "trainmaster.holder"  # in a request's scope: the user or job that it is kept open for


class ConnectionHolder(NamedTuple):
    """The user or job that a connection is open for. `session_id`: None where a service admits anybody with its key,
    `user_id` being the task's owner, and where a program acts as the user from `inside` an attempt's job."""

    user_id: int
    session_id: int | None = None
    inside: str | None = None


class SessionGuard:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._open: dict[ConnectionHolder, set[Flag]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, holder: ConnectionHolder) -> Iterator[asyncio.Event]:
        """Inside the block the event is set once the holder of the connection is no longer valid."""
        ended = asyncio.Event()
        with self.setting(holder, ended):
            yield ended

    @contextmanager
    def setting(self, holder: ConnectionHolder, ended: Flag) -> Iterator[None]:
        """Set the caller's own flag inside the block once the holder of the connection is no longer valid."""
        self._open.setdefault(holder, set()).add(ended)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._open[holder].discard(ended)
            if not self._open[holder]:
                del self._open[holder]

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
        sessions = {holder.session_id for holder in asked if holder.session_id is not None}
        users = {holder.user_id for holder in asked}
        attempts = {holder.inside for holder in asked if holder.inside is not None}
        alive = await run_in_threadpool(self._master.identities.valid_credentials, sessions, users, attempts)
        for holder in asked:
            lasts = holder.session_id is None or holder.session_id in alive.sessions
            if lasts and holder.user_id in alive.users and (holder.inside is None or holder.inside in alive.attempts):
                continue
            for ended in self._open.get(holder, ()):
                ended.set()
