"""What a job's node says last: how it ended, with what was left of its report streams.

Jobs that are started together end together. Those whose last words lead to nothing but being written down share a
transaction, at the price of six statements for all instead of six for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.allocations import exit_schema, job_log
from trainmaster.master.services.allocations.job_log import Json, StreamBatch
from trainmaster.master.services.allocations.job_reports import take_reports
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import Settings, Store, wake


@dataclass(frozen=True)
class ExitReport:
    """Of one node of an attempt; `record`: what it says of its end, unchecked."""

    allocation_id: str
    record: object
    rest: Sequence[StreamBatch]


def take_exit(
    store: Store, settings: Settings, allocation_id: str, said: object, last: Sequence[StreamBatch] = ()
) -> dict[str, int]:
    """The runtime of one node says how it ended, and brings what was left of its streams. The controller draws the
    conclusion. Returns how much of these streams has been taken in.

    Raises Invalid for what no runtime says and for records that cannot be stored, NotFound."""
    record = exit_schema.checked(said)
    acked = {
        piece.stream: take_reports(store, settings, allocation_id, piece.stream, piece.first, piece.records).acked
        for piece in last
        if piece.stream == "core"
    }
    lines = sorted((piece for piece in last if piece.stream != "core"), key=lambda piece: piece.stream)
    try:
        acked |= job_log.heeding(store, lambda listen: _take_exit(store, allocation_id, record, lines, listen=listen))
    except (DataError, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"The last records cannot be stored: {error!r:.300}.") from error
    return acked


def take_exits_together(store: Store, words: Sequence[ExitReport]) -> list[dict[str, int] | None]:
    """The same for different attempts in one transaction; None for those that have to be taken in by themselves: they
    do not fit, bring reports that the search decides on or lines that somebody waits for, or are of an attempt that
    somebody else holds at the moment.

    The rows are locked in one order by all: attempts, then streams, then logs, each by id.
    """
    records = {word.allocation_id: record for word in words if (record := _plain(word)) is not None}
    of_all = {word.allocation_id: word for word in words if word.allocation_id in records}
    acked: dict[str, dict[str, int]] = {}
    if of_all:
        ranks = {piece.rank for word in of_all.values() for piece in word.rest}
        with store.transaction() as session:
            heads = session.execute(_FREE_HEADS, {"ids": list(of_all), "ranks": sorted(ranks)}).all()
            quiet = [head for head in heads if not job_log.heard(head, of_all[head.Allocation.id].rest)]
            for head in quiet:
                _note_exit(session, head.Allocation, records[head.Allocation.id])
            session.flush()  # the streams' locks come after the attempts', the logs' are the last ones
            pieces = sorted(
                ((head, piece) for head in quiet for piece in of_all[head.Allocation.id].rest),
                key=lambda item: (item[0].Allocation.id, item[1].stream),
            )
            new = job_log.begun(session, [(h.Allocation.id, p) for h, p in pieces if p.first == 1 and p.records])
            acked = {head.Allocation.id: {} for head in quiet}
            notes = log_store.Notes()
            for head, piece in pieces:
                allocation: Allocation = head.Allocation
                fresh, upto = piece.records, len(piece.records)
                if (allocation.id, piece.stream) not in new:
                    fresh, upto = job_log.unseen(session, allocation.id, piece)
                acked[allocation.id][piece.stream] = upto
                lines = job_log.lines_of(session, allocation, piece, fresh, head.names or {})
                notes.add(allocation.task_id, allocation.id, lines)
            notes.write(session)
    return [acked.get(word.allocation_id) for word in words]


def _plain(word: ExitReport) -> dict[str, Any] | None:
    streams = {piece.stream for piece in word.rest}
    if "core" in streams or len(streams) < len(word.rest):
        return None
    try:
        return exit_schema.checked(word.record)
    except Invalid:  # will be said to whoever says it again by itself
        return None


def _take_exit(
    store: Store, allocation_id: str, record: Json, lines: Sequence[StreamBatch], *, listen: bool
) -> dict[str, int]:
    with store.transaction() as session:
        facts = {"ids": [allocation_id], "ranks": [piece.rank for piece in lines]}
        head = session.execute(_LOCKED_HEAD, facts).first()
        if head is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        if listen:
            job_log.listen(head, lines)
        _note_exit(session, head.Allocation, record)
        session.flush()  # the log's lock must be the last one taken
        return {piece.stream: job_log.take_lines(session, head.Allocation, piece, head.names or {}) for piece in lines}


def _note_exit(session: Session, allocation: Allocation, record: dict[str, Any]) -> None:
    rank = str(record["node_rank"])
    if allocation.ended_at is not None or rank in allocation.exits:
        return
    if allocation.lease_job not in (None, record.get("job_id")):
        return  # a double that left something in the folder does not speak for the job that runs
    allocation.exits = {**allocation.exits, rank: {**record, "received_at": now().timestamp()}}
    if record.get("preempt_acked"):
        allocation.preempt_acked = True
    wake(session, f"exit:{allocation.id}", "controller")


_LOCKED_HEAD = job_log.HEAD.with_for_update(of=Allocation)
_FREE_HEADS = job_log.HEAD.order_by(Allocation.id).with_for_update(of=Allocation, skip_locked=True)
