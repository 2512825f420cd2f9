"""Sequence numbers of changed rows, maintained by the database, for clients that follow changes.

Projects, models and model versions have a column `seq`. Triggers empty it when anything else in the row changes, and
notify `stream` to all masters. A reader of changes first numbers such rows, one reader after the other. So numbers
ascend in the order in which changes became visible, writers never wait, and a client that remembers the highest number
it has seen misses no change. A number drawn by the writer could become visible after a higher one.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

SUBJECT = "stream"
KEY = 7301_0003  # of the advisory lock under which numbers are given
TABLES = ("projects", "models", "model_versions")

_PENDING = text(" UNION ALL ".join(f"(SELECT 1 FROM {table} WHERE seq IS NULL LIMIT 1)" for table in TABLES))  # noqa: S608
_LOCK = text(f"SELECT pg_advisory_xact_lock({KEY})")
# Rows that another transaction is changing are left for the next time: waiting for them could take for ever.
_NUMBER = [
    text(
        f"UPDATE {table} SET seq = nextval('change_numbers') WHERE id IN "  # noqa: S608
        f"(SELECT id FROM {table} WHERE seq IS NULL FOR NO KEY UPDATE SKIP LOCKED)"
    )
    for table in TABLES
]
_HIGHEST = text("SELECT last_value FROM change_numbers")


def pending(session: Session) -> bool:
    """Whether there are changes without a number."""
    return session.execute(_PENDING).first() is not None


def number(session: Session) -> None:
    """Give a number to each change without one."""
    session.execute(_LOCK)
    for statement in _NUMBER:
        session.execute(statement)


def highest(session: Session) -> int:
    """Return the last number that was assigned."""
    return int(session.execute(_HIGHEST).scalar_one())
