"""Compacted copies of log lines, as blocks of text in which PostgreSQL searches: a million lines are a thousand rows.

A block holds the lines of a task in a range of ids, in lower case, and the distinct values of each column that lines
are filtered by. It only shows that its range may contain matching lines: these lines are then read, so that the result
is the same as without blocks. Lines never change, and those of one task become visible in the order of their ids; so a
block stays valid for ever, or until its lines are removed.

Trigrams (pg_trgm) were the other choice: an index of all lines, whose cost every write bears, in an extension that a
site's server may not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Integer, Select, Text, cast, delete, func, select, text, update
from sqlalchemy.orm import Session

from trainmaster.master.db.compacted import log_blocks, log_progress
from trainmaster.master.db.tables import task_logs
from trainmaster.master.services.compaction import ENOUGH, CompactionSource
from trainmaster.master.services.context import BoundService

SOURCE = CompactionSource(
    "task_logs",
    text("SELECT max(id) FROM task_logs"),
    text("""
        INSERT INTO log_progress AS p (task_id, upto, pending)
        SELECT task_id, 0, count(*) FROM task_logs WHERE id > :after AND id <= :upto GROUP BY task_id ORDER BY task_id
        ON CONFLICT (task_id) DO UPDATE SET pending = p.pending + excluded.pending
    """),
)

# A block ends where its text reaches `SIZE`, and begins behind the one before it. NULLs are left out of the
# arrays: no filter asks for them.
_BUILD = text("""
    INSERT INTO log_blocks (task_id, last_id, first_id, levels, first_at, last_at, rank_ids, allocation_ids, agent_ids,
                            container_ids, stdtypes, sources, text)
    SELECT task_id, max(id), coalesce(lag(max(id)) OVER (ORDER BY part), :after) + 1,
           bit_or(1 << level), min(at), max(at),
           array_remove(array_agg(DISTINCT rank_id), NULL), array_remove(array_agg(DISTINCT allocation_id), NULL),
           array_remove(array_agg(DISTINCT agent_id), NULL), array_remove(array_agg(DISTINCT container_id), NULL),
           array_remove(array_agg(DISTINCT stdtype), NULL), array_agg(DISTINCT source),
           string_agg(lower(log), chr(10) ORDER BY id)
    FROM (SELECT *, sum(length(log) + 1) OVER (ORDER BY id) / :size AS part FROM task_logs
          WHERE task_id = :task_id AND id > :after AND id <= :upto) AS lines
    GROUP BY task_id, part
""")
_LAST = text("""
    SELECT max(id), count(*) FROM (
        SELECT id FROM task_logs WHERE task_id = :task_id AND id > :after AND id <= :upto ORDER BY id LIMIT :most
    ) AS next
""")
MOST = 16_384  # lines put into blocks at once
SIZE = 65_536  # characters of a block, about


class LogBlocks(BoundService):
    """Compaction of task logs."""

    def due(self) -> list[str]:
        """Tasks with enough new lines to compact."""
        p = log_progress.c
        with self._store.autocommit() as session:
            return list(
                session.scalars(select(p.task_id).where(p.pending >= ENOUGH).order_by(p.pending.desc()).limit(16))
            )

    def compact(self, task_id: str) -> bool:
        """Put a task's next lines into blocks. Returns whether there may be more. It blocks no other transaction."""
        p = log_progress.c
        counted = text("SELECT id FROM condensed_counted WHERE source = 'task_logs'")
        with self._store.transaction() as session:
            after = session.scalar(select(p.upto).where(p.task_id == task_id).with_for_update())
            if after is None:
                return False
            settled = session.execute(counted).scalar_one()
            span = {"task_id": task_id, "after": after, "upto": settled}
            last, lines = session.execute(_LAST, {**span, "most": MOST}).one()
            if lines:
                session.execute(_BUILD, {**span, "upto": last, "size": SIZE})
            more = lines == MOST
            left = func.greatest(p.pending - lines, 0) if more else 0
            progress = update(log_progress).where(p.task_id == task_id)
            session.execute(progress.values(upto=last or after, pending=left))
            return bool(more)


def forget(session: Session, task_ids: Select[str] | Sequence[str]) -> None:
    """Remove the blocks of tasks whose lines are being removed."""
    for table in (log_progress, log_blocks):
        session.execute(delete(table).where(table.c.task_id.in_(task_ids)))


def sweep(session: Session, task_ids: Sequence[str]) -> None:
    """Remove the blocks of those of these tasks that have no lines any more after a removal."""
    p = log_progress.c
    # Waits for a transaction that makes blocks of the same lines.
    session.execute(select(p.task_id).where(p.task_id.in_(task_ids)).order_by(p.task_id).with_for_update())
    line = select(task_logs.c.id).where(task_logs.c.task_id == log_blocks.c.task_id)
    session.execute(delete(log_blocks).where(log_blocks.c.task_id.in_(task_ids), ~line.exists()))


# -- reading ------------------------------------------------------------------------------------------------------


def upto(session: Session, task_id: str) -> int:
    """Return the id up to which a task's lines are in blocks."""
    p = log_progress.c
    return session.scalar(select(p.upto).where(p.task_id == task_id)) or 0


@dataclass(frozen=True)
class Span:
    """Lines with ids above `after`, up to `last`."""

    after: int
    last: int


def spans(
    session: Session, task_id: str, conditions: Sequence[ColumnElement[bool]], after: int, upto: int, newest_first: bool
) -> Iterator[Span]:
    """Yield the ranges of the blocks that meet `conditions`, of ids above `after` and up to `upto`. They are asked for
    a few at a time, since usually the first ones are enough; adjacent blocks make one range."""
    b = log_blocks.c
    low, high, most = after, upto, 4
    while low < high:
        query = select(b.first_id, b.last_id).where(b.task_id == task_id, b.last_id > low, b.first_id <= high)
        query = query.where(*conditions).order_by(b.last_id.desc() if newest_first else b.last_id).limit(most)
        spans_of_blocks = [Span(max(row.first_id - 1, after), min(row.last_id, upto)) for row in session.execute(query)]
        yield from _joined(spans_of_blocks)
        if len(spans_of_blocks) < most:
            return
        low, high = (low, spans_of_blocks[-1].after) if newest_first else (spans_of_blocks[-1].last, high)
        most = min(most * 4, 256)


def _joined(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the same lines in as few ranges as there can be, in the same order."""
    joined: Span | None = None
    for span in spans:
        if joined is not None and joined.last == span.after:
            joined = Span(joined.after, span.last)
        elif joined is not None and span.last == joined.after:
            joined = Span(span.after, joined.last)
        else:
            if joined is not None:
                yield joined
            joined = span
    if joined is not None:
        yield joined


def values(session: Session, task_id: str, names: Sequence[str]) -> dict[str, set[Any]]:
    """Return the distinct values in each of these columns of a task's blocks."""
    query = select(*(log_blocks.c[name] for name in names)).where(log_blocks.c.task_id == task_id).distinct()
    distinct: dict[str, set[Any]] = {name: set() for name in names}
    for row in session.execute(query):
        for name, present in zip(names, row, strict=True):
            distinct[name].update(present)
    return distinct


def holds(text: str) -> ColumnElement[bool]:
    """Condition on a block that contains `text`, in whatever case."""
    return func.strpos(log_blocks.c.text, func.lower(text)) > 0


def has_any(name: str, wanted: Sequence[str] | Sequence[int]) -> ColumnElement[bool]:
    """Condition on a block with a line that has one of these values in the column of that name."""
    column = log_blocks.c[name]
    kind = Integer if name == "rank_ids" else Text
    return column.op("&&", is_comparison=True)(cast(list(wanted), ARRAY(kind)))
