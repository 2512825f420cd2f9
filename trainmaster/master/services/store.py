"""Transactions, and the notification of other threads and processes after them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from psycopg2 import errorcodes
from sqlalchemy import Engine, event
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from trainmaster.config.limits import DEFAULTS, Limits
from trainmaster.master.db.engine import notify, without_transaction
from trainmaster.master.db.request_context import CURRENT
from trainmaster.master.db.watchdog import Watchdog
from trainmaster.master.services import live_changes
from trainmaster.master.services.errors import Invalid, ServiceError, TooSlow
from trainmaster.master.services.live_changes import LiveChanges

CHANNEL = "trainmaster"
_PROGRAM_LIMIT = "54"  # the class of SQLSTATE: too many arguments, columns, levels
_TOO_MUCH = (errorcodes.OUT_OF_MEMORY, errorcodes.CONFIGURATION_LIMIT_EXCEEDED)  # a full disk is not the statement's
_SUBJECTS = "wake"  # in a session's info
_NUL = "NUL (0x00)"  # psycopg2 says so without one of its own error classes


class Store:
    """The database as services see it."""

    def __init__(self, engine: Engine, presence: Watchdog | None = None, limits: Limits = DEFAULTS) -> None:
        self.engine = engine
        self._presence = presence
        self._sessions = sessionmaker(engine, expire_on_commit=False, info={"limits": limits})
        event.listen(self._sessions, "after_flush", live_changes.note_flush)
        self.live = LiveChanges(engine)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Yield a session whose work is committed at the end of the block, rolled back by any exception. Raises Invalid
        for a value that PostgreSQL cannot hold (NUL, half a surrogate pair, a number out of range), for the sender to
        learn. Raises one of AWAY while the database does not answer."""
        with self._asked(), self._sessions.begin() as session:
            yield session
            if (subjects := session.info.get(_SUBJECTS)) and session.in_transaction():  # not rolled back by the block
                notify(session.connection(), CHANNEL, sorted(subjects))
        if subjects_changed := live_changes.noted(session):
            self.live.add(subjects_changed)

    @contextmanager
    def autocommit(self) -> Iterator[Session]:
        """For one query that changes nothing, without a transaction around it: one message to the database instead of
        three. Several queries may see different moments. Raises like `transaction`."""
        with self._asked(), self._sessions() as session, without_transaction(session.connection()):
            yield session

    def check(self) -> None:
        """Raise DatabaseUnavailable while the database is known not to answer."""
        if self._presence is not None:
            self._presence.check()

    @contextmanager
    def _asked(self) -> Iterator[None]:
        self.check()
        try:
            yield
        except OperationalError as error:
            raise _of_the_statement(error) or error from None
        except DataError as error:
            why = str(error.orig).partition("\n")[0]
            raise Invalid(f"A value cannot be stored: {why}.") from None
        except ValueError as error:
            if _NUL not in str(error):
                raise
            raise Invalid("A text holds a NUL character, which cannot be stored.") from None


def _of_the_statement(error: OperationalError) -> ServiceError | None:
    """Whether an operational error concerns only the statement: PostgreSQL answers, and another statement would
    succeed."""
    code = str(getattr(error.orig, "pgcode", None) or "")
    if code == errorcodes.QUERY_CANCELED:
        return TooSlow(
            f"The database did not answer within {CURRENT.get().seconds:.0f} s, which is all that one request may ask "
            "of it: ask for less (a shorter span, a filter, a simpler pattern), or ask the administrator for a larger "
            "limits.statement."
        )
    if code.startswith(_PROGRAM_LIMIT) or code in _TOO_MUCH:
        why = str(error.orig).partition("\n")[0]
        return Invalid(f"This is more than the database can work on at once: {why}. Ask for less.")
    return None


def wake(session: Session, *subjects: str) -> None:
    """Wake, at commit, the waiters for one of `subjects` (`allocation:ID`, `task:ID`, `controller`, `janitor`)."""
    session.info.setdefault(_SUBJECTS, set()).update(subjects)


class Flag(Protocol):
    """What a wake-up sets: an `asyncio.Event`, or something like it."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class Wakeups:
    """Waits for subjects, from coroutines and from threads. A wake-up is a hint: check again after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, Flag]]] = defaultdict(set)
        self._threads: dict[str, set[threading.Event]] = defaultdict(set)
        self._closed = False

    def fire(self, subject: str) -> None:
        with self._lock:
            waiting = list(self._waiting.get(subject, ()))
            threads = list(self._threads.get(subject, ()))
        for loop, flag in waiting:
            # One that is set will be cleared before its waiter looks, and so sees this too.
            if not flag.is_set():
                loop.call_soon_threadsafe(flag.set)
        for thread_flag in threads:
            thread_flag.set()

    def fire_all(self) -> None:
        """Wake every waiter: wake-ups may have been missed."""
        with self._lock:
            subjects = [*self._waiting, *self._threads]
        for subject in subjects:
            self.fire(subject)

    @contextmanager
    def listening(self, subject: str) -> Iterator[asyncio.Event]:
        """Register a waiter. Register before checking, so that no change between the check and the wait is missed."""
        woken = asyncio.Event()
        with self.waking(subject, woken):
            yield woken

    @contextmanager
    def waking(self, subject: str, flag: Flag) -> Iterator[None]:
        """Yield the same with a flag of the caller's, for coroutines that wait for several subjects."""
        entry = (asyncio.get_running_loop(), flag)
        with self._lock:
            self._waiting[subject].add(entry)
            if self._closed:
                flag.set()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[subject].discard(entry)
                if not self._waiting[subject]:
                    del self._waiting[subject]

    def subscribe(self, subject: str, flag: threading.Event) -> None:
        with self._lock:
            self._threads[subject].add(flag)

    def unsubscribe(self, subject: str, flag: threading.Event) -> None:
        with self._lock:
            self._threads[subject].discard(flag)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Releases every waiter: the master is stopping."""
        with self._lock:
            self._closed = True
        self.fire_all()
