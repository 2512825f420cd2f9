"""Takes in log lines of the nodes of a job, as streams of numbered records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.allocations.preemption import note_pending_preemption
from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.events import log_watch
from trainmaster.master.services.events.log_watch import LogWatch
from trainmaster.master.services.ingest.streams import _NAMES, _THESE, Names, StreamBatch, unseen
from trainmaster.master.services.logs import log_store
from trainmaster.master.values.stored import Json

"""Of nodes, by their rank."""


class JobLogs(BoundService):
    """Policies for the log lines of jobs."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._log_watch = LogWatch(master)

    def apply_log_policies(self, written: Mapping[str, Sequence[StreamBatch]]) -> None:
        """Apply log policies of experiments, and webhooks, to lines that attempts (by id) wrote. It comes before the
        lines are stored, and must not wait for a lock while its caller holds any. Doing it again changes nothing."""
        for task_id, match in self.matches(written).values():
            self._log_watch.act(task_id, match)

    def matches(self, written: Mapping[str, Sequence[StreamBatch]]) -> dict[str, tuple[str, log_watch.LogMatch]]:
        """For attempts whose lines match: the task, and the matches."""
        watched = {name: some for name, pieces in written.items() if (some := [p for p in pieces if _has_lines(p)])}
        if not watched:
            return {}
        ranks = {piece.rank for pieces in watched.values() for piece in pieces}
        with self._store.autocommit() as session:
            rows = session.execute(_WATCHED, {"ids": list(watched), "ranks": sorted(ranks)}).all()
        matches = (
            (row, log_watch.matching(row.waited, partial(_lines_in, watched[row.id], row.names or {}))) for row in rows
        )
        return {row.id: (row.task_id, each) for row, each in matches if each is not None}


def _has_lines(piece: StreamBatch) -> bool:
    return piece.stream != "core" and any("line" in record for record in piece.records)


def _lines_in(pieces: Sequence[StreamBatch], names: Names) -> Iterator[log_watch.WatchedLine]:
    for piece in pieces:
        node = names.get(str(piece.rank), "")
        for record in piece.records:
            if "line" in record and record.get("source") != "runtime":
                yield log_watch.WatchedLine(str(record["line"]), node)


def take_lines(session: Session, allocation: Allocation, piece: StreamBatch, names: Names) -> int:
    """Take in the new records of the piece; return how much of its stream is taken in with it. The log's lock must be
    the last one taken."""
    fresh, acked = unseen(session, allocation.id, piece)
    if fresh:
        lines = lines_of(session, allocation, piece, fresh, names)
        log_store.append(session, allocation.task_id, allocation.id, lines)
    return acked


def lines_of(
    session: Session, allocation: Allocation, piece: StreamBatch, fresh: Sequence[Json], names: Names
) -> list[log_store.NewLogLine]:
    """Return new records of a piece as lines of the log; their other contents are noted. Raises Invalid."""
    for record in fresh:
        if record.get("kind") == "preempt_pending":
            note_pending_preemption(session, allocation, str(record.get("reason") or "scheduler"))
    node = names.get(str(piece.rank))
    return [_line(record, node) for record in map(_with_line, fresh) if "line" in record]


def _with_line(record: Json) -> Json:
    """Return the record; of a line that was refused for good one in its place that tells why."""
    if record.get("kind") != "unreadable":
        return record
    why, start = str(record.get("why") or "it is not a record")[:300], str(record.get("start") or "")[:200]
    line = f"A line of the log was refused for good and left out: {why}" + (f"; it began: {start}" if start else "")
    return {key: value for key, value in record.items() if key == "t"} | {"line": line, "level": "ERROR"}


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


_WATCHED = select(
    Allocation.id,
    Allocation.task_id,
    _NAMES.scalar_subquery().label("names"),
    log_watch.waiting(Allocation.task_id).label("waited"),
).where(_THESE)
