"""Numbered streams of records: which of a batch are new, and how far each stream is acknowledged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ARRAY, Integer, Text, any_, bindparam, cast, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, AllocationNode, ReportStream, Trial
from trainmaster.master.services.bounds import limits_of
from trainmaster.master.services.errors import Invalid
from trainmaster.master.values.stored import Json

Names = Mapping[str, str]


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


def unseen(session: Session, allocation_id: str, piece: StreamBatch) -> tuple[Sequence[Json], int]:
    """Return the new ones of the records, and how much of their stream, which is locked, is taken in with them. Nothing
    is new when they leave a gap: the sender then returns to what is acknowledged."""
    first, records = piece.first, piece.records
    if first < 1:
        raise Invalid(f"The first record's number must be at least 1, but is {first}.")
    if first == 1 and records and begun(session, [(allocation_id, piece)]):  # usually the stream is new
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
    new = {(row[0], row[1]) for row in session.connection().execute(_NEW_STREAMS, rows)} if rows else set()
    if new:
        check_streams(session, {allocation_id for allocation_id, _ in new})
    return new


def check_streams(session: Session, allocation_ids: Collection[str]) -> None:
    """Raise Invalid where one of these attempts has more streams than it may have."""
    counts = select(func.count()).where(ReportStream.allocation_id.in_(allocation_ids))
    most = session.scalar(counts.group_by(ReportStream.allocation_id).order_by(func.count().desc()).limit(1)) or 0
    if excess := limits_of(session).over("job_entries", most, "The reports of the attempt have {} streams"):
        raise Invalid(excess)


_NAMES = select(func.jsonb_object_agg(cast(AllocationNode.node_rank, Text), AllocationNode.name)).where(
    AllocationNode.allocation_id == Allocation.id,
    AllocationNode.node_rank == any_(bindparam("ranks", type_=ARRAY(Integer))),
)


_THESE = Allocation.id == any_(bindparam("ids", type_=ARRAY(Text)))


# The facts about jobs (`ids`) that are needed to take in lines of their nodes (`ranks`).
HEAD = (
    select(Allocation, Trial.experiment_id, _NAMES.scalar_subquery().label("names"))
    .outerjoin(Trial, Trial.id == Allocation.trial_id)
    .where(_THESE)
)


_NEW_STREAMS = insert(ReportStream).on_conflict_do_nothing().returning(ReportStream.allocation_id, ReportStream.stream)


_STREAM = (ReportStream.allocation_id == bindparam("of"), ReportStream.stream == bindparam("name"))


_ACKED = select(ReportStream.acked).where(*_STREAM).with_for_update()


_ADVANCE = update(ReportStream).where(*_STREAM).values(acked=bindparam("upto"))


_ADVANCE = _ADVANCE.execution_options(synchronize_session=False)
