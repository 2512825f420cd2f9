"""Takes in the exit of a job's node: how it ended, with the rest of its report streams.

Jobs that are started together end together. Those that end at the same time share a transaction, at the price of six
statements for all instead of six for each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Row
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.allocations import leases
from trainmaster.master.services.batches import CannotBatch, single
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound, ServiceError
from trainmaster.master.services.ingest import logs, streams
from trainmaster.master.services.ingest.calls import ReportCall, ReportCalls
from trainmaster.master.services.ingest.logs import JobLogs
from trainmaster.master.services.ingest.records import storing
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import wake
from trainmaster.master.values.exits import ExitRecord
from trainmaster.master.values.stored import Json

AckedRecords = dict[str, int]
"""How much of each stream has been taken in."""


@dataclass(frozen=True)
class ExitReport:
    """Of one node of an attempt; `record`: what it says of its end, unchecked."""

    allocation_id: str
    record: object
    rest: Sequence[StreamBatch] = ()


class Exits(BoundService):
    """Exit records that jobs send."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._job_logs = JobLogs(master)
        self._report_calls = ReportCalls(master)

    def take_exits(self, reports: Sequence[ExitReport], *, wait: bool = True) -> list[AckedRecords | Exception]:
        """Note how nodes of different attempts ended, and take in what was left of their streams. The controller draws
        the conclusions. It is repeatable: what was said before is left as it is, and records that were taken in are
        skipped.

        The outcomes are in the order of the reports: how much of the streams has been taken in; Invalid for what no
        runtime says, NotFound. Without `wait` those are left `CannotBatch` that bring reports or lines that somebody
        waits for, or are of an attempt that somebody else holds. Raises Invalid for lines that cannot be stored.
        Everybody locks attempts, then streams, then logs, each in the order of their ids."""
        outcomes: dict[str, AckedRecords | Exception] = {}
        records: dict[str, Json] = {}
        lines: dict[str, Sequence[StreamBatch]] = {}
        taken: dict[str, AckedRecords] = {}
        for report in reports:
            name = report.allocation_id
            try:
                record = checked(report.record)
                if wait:
                    taken[name] = self._take_reports(report)
                elif any(piece.stream == "core" for piece in report.rest):
                    continue
                else:
                    taken[name] = {}
            except ServiceError as error:
                outcomes[name] = error
                continue
            records[name], lines[name] = record, [piece for piece in report.rest if piece.stream != "core"]
        if wait:
            self._job_logs.apply_log_policies(lines)
        else:
            watched = self._job_logs.matches(lines)
            records = {name: record for name, record in records.items() if name not in watched}
        if records:
            with storing("The last records"), self._store.transaction() as session:
                heads = _heads(session, lines, records, wait=wait)
                outcomes |= _take(session, heads, records, lines, taken)
        for report in reports:
            name = report.allocation_id
            if name not in outcomes:
                outcomes[name] = NotFound(f"There is no allocation {name}.") if wait else CannotBatch()
        return [outcomes[report.allocation_id] for report in reports]

    def _take_reports(self, report: ExitReport) -> AckedRecords:
        return {
            piece.stream: single(self._report_calls.take_reports([ReportCall(report.allocation_id, piece)])).acked
            for piece in report.rest
            if piece.stream == "core"
        }


def _heads(
    session: Session, lines: Mapping[str, Sequence[StreamBatch]], names: Collection[str], *, wait: bool
) -> Sequence[Row[Any]]:
    """Return the attempts of these names, locked; those that somebody else holds are left out, or waited for."""
    ranks = {piece.rank for name in names for piece in lines[name]}
    query = streams.HEAD.order_by(Allocation.id).with_for_update(of=Allocation, skip_locked=not wait)
    return session.execute(query, {"ids": list(names), "ranks": sorted(ranks)}).all()


def _take(
    session: Session,
    heads: Sequence[Row[Any]],
    records: Mapping[str, Json],
    lines: Mapping[str, Sequence[StreamBatch]],
    taken: Mapping[str, AckedRecords],
) -> Mapping[str, AckedRecords]:
    """By attempt. `taken` is what was taken in before."""
    for head in heads:
        _note_exit(session, head.Allocation, records[head.Allocation.id])
    session.flush()  # the streams' locks come after the attempts', the logs' are the last ones
    pieces = [
        (head, piece) for head in heads for piece in sorted(lines[head.Allocation.id], key=lambda piece: piece.stream)
    ]
    new = streams.begun(session, [(h.Allocation.id, p) for h, p in pieces if p.first == 1 and p.records])
    notes = log_store.Notes()
    for head, piece in pieces:
        allocation: Allocation = head.Allocation
        fresh, upto = piece.records, len(piece.records)
        if (allocation.id, piece.stream) in new:
            new.remove((allocation.id, piece.stream))  # what else comes of this stream is no longer its beginning
        else:
            fresh, upto = streams.unseen(session, allocation.id, piece)
        taken[allocation.id][piece.stream] = upto
        written = logs.lines_of(session, allocation, piece, fresh, head.names or {})
        notes.add(allocation.task_id, allocation.id, written)
    notes.write(session)
    return {head.Allocation.id: taken[head.Allocation.id] for head in heads}


def _note_exit(session: Session, allocation: Allocation, record: dict[str, Any]) -> None:
    exit_record = ExitRecord.from_json(record)
    rank = exit_record.node_rank
    if allocation.ended_at is not None or rank in allocation.exits:
        return
    if rank >= leases.most_nodes(allocation):
        return  # no job of the attempt has this node
    if allocation.lease_job not in (None, exit_record.job_id):
        return  # a double that left something in the folder does not speak for the job that runs
    allocation.exits = allocation.exits.added(rank, record, now().timestamp())
    if exit_record.acked:
        allocation.preempt_acked = True
    wake(session, f"exit:{allocation.id}", "controller")


# Characters that PostgreSQL cannot store, that move a terminal's cursor, or that change the direction of writing.
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_TEXT = 4000  # characters
MOST_STREAMS = 1000  # of one node


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text[:LONGEST_TEXT])


Text = Annotated[str, AfterValidator(_fit)]
Stream = Annotated[str, Field(max_length=64), AfterValidator(_fit)]
Moment = Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]


class _Preempted(BaseModel):
    reason: Text


class _Record(BaseModel):
    """The keys of an exit record (docs/architecture/in-job-protocol.md); others are dropped."""

    model_config = ConfigDict(extra="ignore")

    allocation_id: Text = ""
    job_id: Text = ""
    node_rank: int = Field(default=0, ge=0, lt=1_000_000)
    node_name: Text = ""
    exit_code: int = Field(ge=-255, le=255)
    signal: int | None = Field(default=None, ge=1, le=64)
    oom: bool = False
    preempted: _Preempted | None = None
    preempt_acked: bool = False
    began: bool = True
    message: Text = ""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    evidence: Text = ""
    failed_rank: int | None = Field(default=None, ge=0, lt=1_000_000)
    failed_at: Moment | None = None
    fault: Text = ""
    spool: dict[Stream, Annotated[int, Field(ge=0, lt=2**53)]] = Field(default_factory=dict, max_length=MOST_STREAMS)


def checked(record: object) -> dict[str, Any]:
    """Return a validated copy of `record`, safe to store and to decide on. Raises Invalid with what does not fit."""
    try:
        return _Record.model_validate(record).model_dump()
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, f['loc'])) or 'it'}: {f['msg']}" for f in error.errors()[:3])
        raise Invalid(f"The exit record does not fit: {faults}.") from None
