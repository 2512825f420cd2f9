"""Tells all masters, soon after a commit, what of the things that pages show has changed.

Every flush notes the subjects of the rows that it changes: `experiment:ID`, `trial:ID`, `user:ID` (the experiments and
tasks of a user) and `experiments` (any). After the commit they are collected, and sent together a few times a second.
They are not sent by the transactions themselves, as wake-ups are: PostgreSQL lets only one transaction with a NOTIFY
commit at a time, and reports would wait for each other.

What is told is a hint to look again. A crash between a commit and its hint loses the hint, not the change: pages of
this master connect anew and read all; those of other masters look again by themselves from time to time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
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
REST = 0.2  # seconds between two messages to the masters
EXPERIMENTS = "experiments"
_LONGEST = 7_000  # bytes of a payload; PostgreSQL takes 8,000
_NOTED = "live"  # in a session's info
# What no page shows: a job that lives changes these all the time.
_QUIET: Mapping[type[Any], frozenset[str]] = {
    Allocation: frozenset(("heartbeat_at", "absent_since", "collected")),
}
# Not before a commit on disk: nothing is lost with it that the database has.
_SEND = text(
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, payload) "
    "FROM unnest(CAST(:payloads AS text[])) AS payload"
)


def of_user(user_id: int | None) -> str:
    """The subject of a user's experiments and tasks."""
    return f"user:{user_id}"


def changed(session: Session, *subjects: str) -> None:
    """Notes subjects for what a statement changes without an object of the session."""
    session.info.setdefault(_NOTED, set()).update(subjects)


def noted(session: Session) -> set[str]:
    found: set[str] = session.info.get(_NOTED, set())
    return found


def note_flush(session: Session, _: object) -> None:
    """For SQLAlchemy's `after_flush`."""
    found: set[str] = session.info.setdefault(_NOTED, set())
    for row in chain(session.new, session.deleted):
        found.update(_subjects(instance_state(row)))
    for row in session.dirty:
        state = instance_state(row)
        if _is_news(state):
            found.update(_subjects(state))


def _is_news(state: InstanceState[Any]) -> bool:
    quiet = _QUIET.get(state.class_, frozenset())
    return any(name not in quiet and state.dict.get(name) != old for name, old in state.committed_state.items())


def _subjects(state: InstanceState[Any]) -> Iterator[str]:
    """Reads what is loaded, and nothing else: a query would flush again."""
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
    """Collects subjects and sends them, in a thread of its own. Before `start` they are dropped: a program that is no
    master has no pages."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._subjects: set[str] = set()
        self._some, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
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
        with self._lock:
            self._subjects.update(subjects)
        self._some.set()

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
                self.add(subjects)
            except Exception:  # later changes must still be told
                log.exception("could not tell the masters what has changed")
            self._stop.wait(REST)

    def _send(self, subjects: Iterable[str]) -> None:
        payloads = list(packed(subjects))
        with self._engine.connect() as connection, without_transaction(connection):
            connection.execute(_SEND, {"channel": CHANNEL, "payloads": payloads})


def packed(subjects: Iterable[str]) -> Iterator[str]:
    """The subjects in as few payloads as they fit into."""
    some: list[str] = []
    size = 0
    for subject in sorted(subjects):
        if some and size + len(subject) >= _LONGEST:
            yield " ".join(some)
            some, size = [], 0
        some.append(subject)
        size += len(subject) + 1
    if some:
        yield " ".join(some)


def unpacked(payload: str) -> list[str]:
    return payload.split(" ")
