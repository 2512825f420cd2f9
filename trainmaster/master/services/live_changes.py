"""Notifies pages, after a commit, of the topics that have changed.

Every flush notes the subjects of the rows that it changes: `experiment:ID`, `trial:ID`, `user:ID` (the experiments and
tasks of a user) and `experiments` (any). After the commit this master's pages are woken at once, and those of other
masters within half a second, for many commits together. The transactions themselves do not notify, as wake-ups do:
PostgreSQL lets only one transaction with a NOTIFY commit at a time, and reports would wait for each other.

A notification is a hint to refetch. A crash between a commit and its hint loses the hint, not the change: pages of
this master reconnect and read all; those of other masters refetch periodically.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import InstanceState, Session
from sqlalchemy.orm.attributes import instance_state

from trainmaster.master.db.engine import without_transaction
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Story, Trial
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE

log = logging.getLogger(__name__)

CHANNEL = "trainmaster_live"
REST = 0.5  # seconds between two messages to other masters
EXPERIMENTS = "experiments"
_LONGEST = 7_000  # bytes of a payload; PostgreSQL takes 8,000
_NOTED = "live"  # in a session's info
# What no page shows: a job that lives changes these all the time.
_QUIET: Mapping[type[Any], frozenset[str]] = {
    Allocation: frozenset(("heartbeat_at", "observed_at", "absent_since", "collected")),
}
# Not before a commit on disk: nothing is lost with it that the database has.
_SEND = text(
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, payload) "
    "FROM unnest(CAST(:payloads AS text[])) AS payload"
)


def of_user(user_id: int | None) -> str:
    """Return the subject of a user's experiments and tasks."""
    return f"user:{user_id}"


def changed(session: Session, *subjects: str) -> None:
    """Note subjects for what a statement changes without an object of the session."""
    session.info.setdefault(_NOTED, set()).update(subjects)


def noted(session: Session) -> set[str]:
    subjects: set[str] = session.info.get(_NOTED, set())
    return subjects


def note_flush(session: Session, _: object) -> None:
    """For SQLAlchemy's `after_flush`."""
    subjects: set[str] = session.info.setdefault(_NOTED, set())
    for row in chain(session.new, session.deleted):
        subjects.update(_subjects(instance_state(row)))
    for row in session.dirty:
        state = instance_state(row)
        if _is_news(state):
            subjects.update(_subjects(state))


def _is_news(state: InstanceState[Any]) -> bool:
    quiet = _QUIET.get(state.class_, frozenset())
    return any(name not in quiet and state.dict.get(name) != old for name, old in state.committed_state.items())


def _subjects(state: InstanceState[Any]) -> Iterator[str]:
    """Read what is loaded, and nothing else: a query would flush again."""
    known = state.dict.get
    kind = state.class_
    if kind is Experiment:
        yield EXPERIMENTS
        yield f"experiment:{known('id')}"
    if kind is Allocation and known("trial_id") is not None:
        yield EXPERIMENTS
        # The task of a trial is named by its experiment.
        yield f"experiment:{str(known('task_id')).partition('.')[0]}"
    if kind is Trial:
        yield f"trial:{known('id')}"
    if kind in (Allocation, Checkpoint):
        yield f"trial:{known('trial_id')}"
    if kind in (Trial, Checkpoint, Story):
        yield f"experiment:{known('experiment_id')}"
    if kind in (Experiment, Allocation, Standalone):
        yield of_user(known("owner_id"))


class LiveChanges:
    """Wakes who waits for subjects here, and sends them to other masters in a thread of its own. Before `start` it does
    nothing: a program that is no master has no pages."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = secrets.token_hex(8)  # by which a master knows what it has sent itself
        self._fire: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        self._subjects: set[str] = set()
        self._some, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, fire: Callable[[str], None]) -> None:
        self._fire = fire
        self._thread = threading.Thread(target=self._run, name="live-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._some.set()
        if self._thread is not None:
            self._thread.join()

    def add(self, subjects: Iterable[str]) -> None:
        if self._thread is None:
            return
        for subject in subjects:
            self._fire(subject)
        with self._lock:
            self._subjects.update(subjects)
        self._some.set()

    def heard(self, payload: str) -> None:
        """For what masters send."""
        name, *subjects = payload.split(" ")
        if name != self._name:
            for subject in subjects:
                self._fire(subject)

    def _run(self) -> None:
        while True:
            self._some.wait()
            if self._stop.is_set():
                return
            self._some.clear()
            with self._lock:
                subjects, self._subjects = self._subjects, set()
            try:
                self._send(subjects)
            except DATABASE_UNAVAILABLE:
                with self._lock:
                    self._subjects.update(subjects)
                self._some.set()
            except Exception:  # later changes must still be told
                log.exception("could not tell the masters what has changed")
            self._stop.wait(REST)

    def _send(self, subjects: Iterable[str]) -> None:
        payloads = list(packed(self._name, subjects))
        with self._engine.connect() as connection, without_transaction(connection):
            connection.execute(_SEND, {"channel": CHANNEL, "payloads": payloads})


def packed(name: str, subjects: Iterable[str]) -> Iterator[str]:
    """Yield the sender and the subjects, in as few payloads as they fit into."""
    some: list[str] = []
    size = 0
    for subject in sorted(subjects):
        if some and size + len(subject) >= _LONGEST:
            yield " ".join((name, *some))
            some, size = [], 0
        some.append(subject)
        size += len(subject) + 1
    if some:
        yield " ".join((name, *some))
