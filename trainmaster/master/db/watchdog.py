"""Notices that the database does not answer, and cuts waits for it short.

A client that waits for a statement waits for ever when the server hangs: a stopped server enforces no time limit of its
own, and the network shows nothing. So one connection sends a trivial query all the time. When that is not answered, the
statements of all others fail at once, and none is begun until it is answered again. While it is answered, a statement
may take as long as its context allows.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2 import extensions
from sqlalchemy import make_url
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from trainmaster.master.db.request_context import CURRENT

log = logging.getLogger(__name__)

PERIOD = 1.0  # seconds between two probes
PATIENCE = 10.0  # seconds for an answer; a machine that is merely busy answers sooner
CONNECT = 10.0  # seconds for a new connection
CHECK_PERIOD = 0.25  # seconds after which a waiting statement checks whether the database is known not to answer


class DatabaseUnavailable(Exception):
    """The database is known not to answer; no statement was sent."""


DATABASE_UNAVAILABLE = (DatabaseUnavailable, OperationalError, InterfaceError, PoolTimeout)
"""What work on the database raises while that is away: try again later."""


def in_short(error: BaseException) -> str:
    """One of AWAY in one line."""
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


class Watchdog:
    """The watchdog of one database. Without `start` the database always counts as answering."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._arguments = parsed.get_dialect()().create_connect_args(parsed)
        self._why = ""
        self._since = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="database-presence", daemon=True)
        presence = self

        class Connection(extensions.connection):
            """A connection whose waits are cut short when the watchdog finds the database down."""

            def why_away(self) -> str:
                return presence.why_away

        self.connections: type[extensions.connection] = Connection
        extensions.set_wait_callback(_wait)

    @property
    def why_away(self) -> str:
        """Why the database counts as down, in words; empty while it answers."""
        return self._why

    def check(self) -> None:
        """Raise DatabaseUnavailable while the database does not answer."""
        if why := self._why:
            raise DatabaseUnavailable(
                f"The database does not answer, for {time.monotonic() - self._since:.0f} s: {why}"
            )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection: Any = None
        while not self._stop.is_set():
            try:
                connection = connection or self._connected()
                cursor = connection.cursor()
                cursor.execute("SELECT 1")
                _until(connection, time.monotonic() + PATIENCE, self._stop.is_set)
            except (psycopg2.Error, OSError) as error:
                self._went(in_short(error))
                if connection is not None:
                    connection.close()
                connection = None
            else:
                self._came()
            self._stop.wait(PERIOD)
        if connection is not None:
            connection.close()

    def _connected(self) -> Any:
        positional, named = self._arguments
        connection = psycopg2.connect(*positional, **named, application_name="trainmaster presence", async_=True)
        try:
            _until(connection, time.monotonic() + PATIENCE, self._stop.is_set)
        except (psycopg2.Error, OSError):
            connection.close()
            raise
        return connection

    def _went(self, why: str) -> None:
        if not self._why and not self._stop.is_set():
            self._since = time.monotonic()
            self._why = why
            log.warning("the database does not answer: %s; requests are refused, and jobs keep their reports", why)

    def _came(self) -> None:
        if self._why:
            self._why = ""
            log.info("the database answers again, after %.0f s", time.monotonic() - self._since)


def _wait(connection: Any) -> None:
    """psycopg2 calls this instead of waiting itself (psycopg2.extensions.set_wait_callback)."""
    why_away: Callable[[], str] | None = getattr(connection, "why_away", None)
    connecting = connection.status == extensions.STATUS_SETUP
    began, cancelled = time.monotonic(), False
    while not _ready(connection, CHECK_PERIOD):
        waited = time.monotonic() - began
        if why_away is not None and (why := why_away()):
            raise psycopg2.OperationalError(f"the database is unavailable: {why}")
        if connecting and waited > CONNECT:
            raise psycopg2.OperationalError(f"no connection within {CONNECT:.0f} s")
        if not connecting and not cancelled and CURRENT.get().over(waited):
            connection.cancel()  # its answer, an error, is then waited for
            cancelled = True


def _until(connection: Any, deadline: float, stopped: Callable[[], bool]) -> None:
    """Wait for an asynchronous connection's operation. Raises OperationalError at `deadline`."""
    while not _ready(connection, CHECK_PERIOD):
        if time.monotonic() > deadline or stopped():
            raise psycopg2.OperationalError(f"no answer within {PATIENCE:.0f} s")


def _ready(connection: Any, wait: float) -> bool:
    """Advance a connection's operation, at most `wait` seconds without progress; returns whether it is done."""
    while (state := connection.poll()) != extensions.POLL_OK:
        wanted = select.POLLIN if state == extensions.POLL_READ else select.POLLOUT
        poller = select.poll()
        poller.register(connection.fileno(), wanted)
        if not poller.poll(wait * 1000):
            return False
    return True
