"""What the nodes of a job write into its task's log, as streams of numbered records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ARRAY, Integer, Row, Text, any_, bindparam, cast, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, AllocationNode, ReportStream, Trial
from trainmaster.master.services.clock import from_epoch, now
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.events import log_watch
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import Store, wake

Json = dict[str, Any]
T = TypeVar("T")
Names = Mapping[str, str]
"""Of nodes, by their rank."""


@dataclass(frozen=True)
class StreamBatch:
    """Records number `first`.. of a stream."""

    stream: str
    first: int
    records: Sequence[Json]

    @property
    def rank(self) -> int:
        """Of the node that writes it."""
        tail = self.stream.rpartition("-")[2]
        return int(tail) if tail.isdigit() else 0


class _Heard(Exception):
    """Lines that are not stored yet lead to something."""

    def __init__(self, task_id: str, found: log_watch.LogMatch) -> None:
        self.task_id, self.found = task_id, found


def heeding(store: Store, take: Callable[[bool], T]) -> T:
    """What `take` gives. It is asked to listen first, and to take lines in as they are once what they lead to is done:
    that must not wait for a lock while `take` holds any."""
    try:
        return take(True)
    except _Heard as heard:
        log_watch.act(store, heard.task_id, heard.found)
    return take(False)


def listen(head: Row[Any], pieces: Sequence[StreamBatch]) -> None:
    """Has `heeding` act on the lines of a job of whom `head` (of HEAD) tells."""
    if (found := heard(head, pieces)) is not None:
        raise _Heard(head.Allocation.task_id, found)


def heard(head: Row[Any], pieces: Sequence[StreamBatch]) -> log_watch.LogMatch | None:
    """What the lines lead to."""
    names: Names = head.names or {}

    def lines() -> Iterator[log_watch.WatchedLine]:
        for piece in pieces:
            node = names.get(str(piece.rank), "")
            for record in piece.records:
                if "line" in record and record.get("source") != "runtime":
                    yield log_watch.WatchedLine(str(record["line"]), node)

    return log_watch.heard(head.waited, lines)


def take_lines(session: Session, allocation: Allocation, piece: StreamBatch, names: Names) -> int:
    """Take in what of the piece is new; how much of its stream is taken in with it. The log's lock must be the last
    one taken."""
    fresh, acked = unseen(session, allocation.id, piece)
    if fresh:
        lines = lines_of(session, allocation, piece, fresh, names)
        log_store.append(session, allocation.task_id, allocation.id, lines)
    return acked


def lines_of(
    session: Session, allocation: Allocation, piece: StreamBatch, fresh: Sequence[Json], names: Names
) -> list[log_store.NewLogLine]:
    """New records of a piece as lines of the log; what else they say is noted. Raises Invalid."""
    for record in fresh:
        if record.get("kind") == "preempt_pending":
            note_pending_preemption(session, allocation, str(record.get("reason") or "scheduler"))
    node = names.get(str(piece.rank))
    return [_line(record, node) for record in fresh if "line" in record]


def unseen(session: Session, allocation_id: str, piece: StreamBatch) -> tuple[Sequence[Json], int]:
    """What of the records is new, and how much of their stream, which is locked, is taken in with it. Nothing is new
    when they leave a gap: the sender goes back to what is acknowledged."""
    first, records = piece.first, piece.records
    if first < 1:
        raise Invalid(f"The first record's number must be at least 1, but is {first}.")
    if first == 1 and records and begun(session, [(allocation_id, piece)]):  # most likely the stream is new
        return records, len(records)
    stream = {"of": allocation_id, "name": piece.stream}
    acked = session.scalar(_ACKED, stream) or 0
    skip = acked + 1 - first
    fresh = records[skip:] if skip >= 0 else ()
    if fresh:
        acked += len(fresh)
        session.execute(_ADVANCE, {**stream, "upto": acked})
    return fresh, acked


def begun(session: Session, pieces: Sequence[tuple[str, StreamBatch]]) -> set[tuple[str, str]]:
    """Of pieces that begin their streams, those (allocation, stream) whose streams were new: they are taken in now."""
    rows = [{"allocation_id": name, "stream": piece.stream, "acked": len(piece.records)} for name, piece in pieces]
    return {(row[0], row[1]) for row in session.connection().execute(_NEW_STREAMS, rows)} if rows else set()


def note_pending_preemption(session: Session, allocation: Allocation, reason: str) -> None:
    if allocation.preempt_at is None:
        allocation.preempt_at = now()
        allocation.preempt_reason = reason
        wake(session, f"allocation:{allocation.id}")


def _line(record: Json, node: str | None) -> log_store.NewLogLine:
    rank = record.get("rank")
    try:
        at = from_epoch(float(record["t"])) if "t" in record else None
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise Invalid(f"A log record does not fit: {error}.") from None
    return log_store.NewLogLine(
        log=str(record["line"]),
        level=str(record.get("level") or "INFO"),
        at=at,
        rank=rank if isinstance(rank, int) else None,
        agent_id=node,
        stdtype=record.get("stdtype"),
        source=str(record.get("source") or "task"),
    )


_NAMES = select(func.jsonb_object_agg(cast(AllocationNode.node_rank, Text), AllocationNode.name)).where(
    AllocationNode.allocation_id == Allocation.id,
    AllocationNode.node_rank == any_(bindparam("ranks", type_=ARRAY(Integer))),
)
# What is to be known of jobs (`ids`) before lines of their nodes (`ranks`) are taken in.
HEAD = (
    select(
        Allocation,
        Trial.experiment_id,
        _NAMES.scalar_subquery().label("names"),
        log_watch.waiting(Allocation.task_id).label("waited"),
    )
    .outerjoin(Trial, Trial.id == Allocation.trial_id)
    .where(Allocation.id == any_(bindparam("ids", type_=ARRAY(Text))))
)
_NEW_STREAMS = insert(ReportStream).on_conflict_do_nothing().returning(ReportStream.allocation_id, ReportStream.stream)
_STREAM = (ReportStream.allocation_id == bindparam("of"), ReportStream.stream == bindparam("name"))
_ACKED = select(ReportStream.acked).where(*_STREAM).with_for_update()
_ADVANCE = update(ReportStream).where(*_STREAM).values(acked=bindparam("upto"))
_ADVANCE = _ADVANCE.execution_options(synchronize_session=False)
