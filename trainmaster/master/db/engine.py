"""Database connections, and notifications between masters through LISTEN and NOTIFY."""

from __future__ import annotations

import json
import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from trainmaster.master.db.request_context import BACKGROUND_SECONDS
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, Watchdog, in_short

log = logging.getLogger(__name__)

POOL_SIZE = 24
IDLE = 1.0  # seconds after which a pooled connection is tried before it is used


def make_engine(url: str, *, pool_size: int = POOL_SIZE, presence: Watchdog | None = None) -> Engine:
    """Return an engine whose pool keeps its connections (a pool that grows and shrinks collapses under load). With
    `watchdog` its statements fail as soon as the database is known not to answer.

    A recently used connection is assumed to work: a test each time costs as much as a short query.
    """
    watched = {"connection_factory": presence.connections} if presence is not None else {}
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_use_lifo=True,
        pool_timeout=30,
        executemany_mode="values_plus_batch",  # rows that are changed together are one message, as new ones are
        json_serializer=lambda value: json.dumps(value, separators=(",", ":"), allow_nan=False),
        connect_args={"application_name": "trainmaster", "connect_timeout": 10, **watched},
    )

    @event.listens_for(engine, "connect")
    def bound(connection: Any, _: object) -> None:
        """Return settings by which the server ends a statement when this process hangs or is gone."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {2 * BACKGROUND_SECONDS * 1000:.0f}")
            if connection.server_version >= 14_00_00:
                cursor.execute("SET client_connection_check_interval = 5000")
        connection.commit()

    @event.listens_for(engine, "checkin")
    def note(_: object, record: ConnectionPoolEntry) -> None:
        record.info["used_at"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def try_if_idle(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        if time.monotonic() - record.info.get("used_at", time.monotonic()) < IDLE:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError(str(error)) from error  # the pool takes another one

    return engine


@contextmanager
def without_transaction(connection: Connection) -> Iterator[None]:
    """Each statement in the block commits by itself. (SQLAlchemy's AUTOCOMMIT would send a statement to reset it.)"""
    driver: Any = connection.connection.driver_connection
    driver.autocommit = True
    try:
        yield
    finally:
        if not driver.closed:
            driver.autocommit = False


def notify(connection: Connection, channel: str, payloads: Sequence[str]) -> None:
    """Notify every master process at commit. Payloads are at most 8,000 bytes each."""
    connection.execute(_NOTIFY, {"channel": channel, "payloads": list(payloads)})


_NOTIFY = text("SELECT pg_notify(:channel, payload) FROM unnest(CAST(:payloads AS text[])) AS payload")


LISTENER_CHECK = 5.0  # seconds without a notification after which the listening connection is tried


class Listener:
    """Hands notifications to callbacks from one thread.

    PostgreSQL loses none as long as the connection lasts, and the connection is tried when it is silent. Those of the
    time without a connection are lost: `missed` is called once there is a connection again.
    """

    def __init__(
        self, engine: Engine, channels: dict[str, Callable[[str], None]], missed: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._channels = channels
        self._missed = missed
        self._heard = True  # the first failure after success is logged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="database-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except Exception as error:  # the database may not answer for a while
                if self._heard:
                    log.warning("listening to the database failed, trying again: %s", in_short(error))
                self._heard = False
                self._stop.wait(1)

    def _listen(self) -> None:
        raw = self._engine.raw_connection()
        try:
            driver: Any = raw.driver_connection
            driver.autocommit = True
            with driver.cursor() as cursor:
                for channel in self._channels:
                    cursor.execute(f"LISTEN {channel}")
                self._heard = True
                self._missed()
                tried = time.monotonic()
                while not self._stop.is_set():
                    if select.select([driver], [], [], 0.5)[0]:
                        driver.poll()
                    elif time.monotonic() - tried >= LISTENER_CHECK:
                        cursor.execute("SELECT 1")
                        tried = time.monotonic()
                    self._hand_over(driver)
        finally:
            raw.invalidate()

    def _hand_over(self, driver: Any) -> None:
        while driver.notifies:
            note = driver.notifies.pop(0)
            self._channels[note.channel](note.payload)


class Leadership:
    """An advisory lock on a connection of its own: its holder runs the controller."""

    KEY = 7301_0002

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._failed = False

    def try_acquire(self) -> bool:
        """Return whether we lead. Notices a lost connection, and with it lost leadership."""
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                self._failed = False
                return True
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": self.KEY}).scalar():
                self._connection = connection
                return True
            connection.close()
        except Exception as error:
            if not self._failed:
                log.warning("cannot check who leads, trying again: %s", in_short(error))
            self._failed = True
            self._drop()
        return False

    def release(self) -> None:
        if self._connection is not None:
            try:
                self._connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self.KEY})
            except DATABASE_UNAVAILABLE as error:  # the lock ends with the connection
                log.info("the lead was not handed over cleanly: %s", in_short(error))
            finally:
                self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
