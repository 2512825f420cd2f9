"""Takes in the reports of jobs, in batches: numbered records of streams, each exactly once.

What trials report most often, measurements in the order of their steps, leads to no decision: those of many jobs are
stored in one transaction, with two statements. Everything else is taken in stream by stream (`job_reports`): what the
search may decide on under the lock of its experiment, lines under that of their log.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits
from trainmaster.master.services import bounds, live_changes
from trainmaster.master.services.access.identity import check_counts
from trainmaster.master.services.batches import CannotBatch
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, ServiceError, Unauthenticated
from trainmaster.master.services.ingest import metrics, records
from trainmaster.master.services.ingest.metrics import Addition, TrialTotals
from trainmaster.master.services.ingest.records import HEARTBEAT_GRAIN, JobRecords, ReportAnswer
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.metrics.metric_reports import MetricReport


@dataclass(frozen=True)
class ReportCall:
    """Records of a stream of an attempt. `replayed`: read from the job folder after the job has gone."""

    allocation_id: str
    piece: StreamBatch
    replayed: bool = False


class ReportCalls(BoundService):
    """Batches of jobs' reports, several jobs in one transaction."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._job_records = JobRecords(master)

    def take_reports(self, calls: Sequence[ReportCall], *, wait: bool = True) -> list[ReportAnswer | Exception]:
        """Take in records of different attempts, each in one transaction with every decision that they lead to. Records
        that have been taken in before are skipped, so that a call can be repeated.

        The outcomes are in the order of the calls; Invalid for records that cannot be stored, NotFound. Without `wait`
        those are left `CannotBatch` that may lead to decisions, may have to be merged with what is there, or are of a
        stream or a trial that somebody holds. Everybody locks streams first, then trials, then attempts, each in the
        order of their ids."""
        outcomes: dict[str, ReportAnswer | Exception] = {}
        limits = self._settings.limits
        measured = {
            call.allocation_id: reports for call in calls if (reports := _measurements(limits, call.piece)) is not None
        }
        if measured:
            with records.storing("The records"), self._store.transaction() as session:
                batch = {call.allocation_id: call for call in calls if call.allocation_id in measured}
                outcomes = _store(session, batch, measured, wait=wait)
        for call in calls:
            if wait and call.allocation_id not in outcomes:
                outcomes[call.allocation_id] = self._take_alone(call)
        return [outcomes.get(call.allocation_id, CannotBatch()) for call in calls]

    def _take_alone(self, call: ReportCall) -> ReportAnswer | Exception:
        try:
            return self._job_records.take_records(call.allocation_id, call.piece, replayed=call.replayed)
        except ServiceError as error:
            return error


def _measurements(limits: Limits, piece: StreamBatch) -> list[MetricReport] | None:
    """Return what the records measure; None where they hold anything else, validations, or something that does not
    fit."""
    if piece.stream != "core" or not piece.records:
        return None
    reports = []
    for record in piece.records:
        if record.get("kind") != "metrics" or record.get("group") == "validation":
            return None
        try:
            bounds.check_tree(limits, record, "A record")
            report = records.report_of(record)
            metrics.check(limits, report)
        except Invalid:  # it may have been taken in before; else it is refused where it is taken in by itself
            return None
        reports.append(report)
    return reports


class _Attempt(NamedTuple):
    """What is known of an attempt, its stream and its trial before its records are taken in."""

    id: str
    acked: int
    trial_id: int
    number: int
    ended_at: dt.datetime | None
    kill_at: dt.datetime | None
    preempt_at: dt.datetime | None
    preempt_reason: str | None
    heartbeat_at: dt.datetime | None
    total_batches: int
    summary: str  # JSON
    experiment_id: int


def _store(
    session: Session,
    calls: Mapping[str, ReportCall],
    measured: Mapping[str, Sequence[MetricReport]],
    *,
    wait: bool,
) -> dict[str, ReportAnswer | Exception]:
    """Store measurements, as far as their streams are there and go on, and nothing has to be merged."""
    connection, limits = session.connection(), bounds.limits_of(session)
    outcomes: dict[str, ReportAnswer | Exception] = {}
    trials: set[int] = set()
    experiments: set[int] = set()
    additions: list[Addition] = []
    streams: list[dict[str, Any]] = []
    alive: list[str] = []
    query = _ATTEMPTS.format(skip="" if wait else "SKIP LOCKED")
    for attempt in map(_Attempt._make, connection.exec_driver_sql(query, {"ids": sorted(calls)}).all()):
        call = calls[attempt.id]
        if not call.replayed:
            try:
                check_counts(attempt.ended_at)
            except Unauthenticated as error:
                outcomes[attempt.id] = error
                continue
        known = attempt.acked + 1 - call.piece.first
        fresh = measured[attempt.id][max(known, 0) :]
        # Another attempt of the same trial, which should have gone, has to build on what the first one adds.
        if attempt.trial_id in trials or known < 0 or not metrics.is_append_only(attempt.total_batches, fresh):
            continue
        if fresh:
            trial = TrialTotals(attempt.trial_id, json.loads(attempt.summary), attempt.total_batches)
            try:
                additions.append(metrics.merge_reports(limits, trial, attempt.number, fresh, {}))
            except Invalid as error:
                outcomes[attempt.id] = error
                continue
            streams.append({"id": attempt.id, "acked": attempt.acked + len(fresh)})
            trials.add(attempt.trial_id)
            experiments.add(attempt.experiment_id)
        if not call.replayed and _stale(attempt.heartbeat_at):
            alive.append(attempt.id)
        gone = attempt.ended_at is not None or attempt.kill_at is not None
        preempt = attempt.preempt_reason or "asked to" if attempt.preempt_at is not None else None
        outcomes[attempt.id] = ReportAnswer(attempt.acked + len(fresh), preempt, gone)
    if additions:
        changed = [
            {"id": addition.trial_id, "summary": addition.summary, "total": addition.total_batches}
            for addition in additions
        ]
        rows = [row for one in additions for row in one.rows]
        arguments = {"rows": rows, "trials": changed, "streams": streams}
        connection.exec_driver_sql(_STORE, {name: metrics.as_json(value) for name, value in arguments.items()})
        subjects = (*(f"trial:{key}" for key in trials), *(f"experiment:{key}" for key in experiments))
        live_changes.changed(session, *subjects)
    if alive:
        connection.exec_driver_sql(_LIFE, {"ids": alive, "at": now()})
    return outcomes


def _stale(heartbeat_at: dt.datetime | None) -> bool:
    return heartbeat_at is None or (now() - heartbeat_at).total_seconds() >= HEARTBEAT_GRAIN


# The fields of _Attempt. What is read is locked, all streams before the first trial.
_ATTEMPTS = """
    WITH attempts AS MATERIALIZED (
        SELECT id, acked, trial_id, attempt, ended_at, kill_at, preempt_at, preempt_reason, heartbeat_at
        FROM report_streams JOIN allocations ON id = allocation_id
        WHERE allocation_id = ANY(%(ids)s) AND stream = 'core' AND trial_id IS NOT NULL
        ORDER BY id FOR UPDATE OF report_streams {skip}
    )
    SELECT attempts.*, total_batches, summary_metrics::text, experiment_id
    FROM attempts JOIN trials ON trials.id = trial_id ORDER BY trials.id FOR UPDATE OF trials {skip}
"""
_SUM = """
    summed AS (
        UPDATE trials SET summary_metrics = fresh.summary, total_batches = fresh.total
        FROM jsonb_to_recordset(CAST(%(trials)s AS jsonb)) AS fresh(id int, summary jsonb, total bigint)
        WHERE trials.id = fresh.id
    )
    UPDATE report_streams SET acked = fresh.acked
    FROM jsonb_to_recordset(CAST(%(streams)s AS jsonb)) AS fresh(id text, acked bigint)
    WHERE report_streams.allocation_id = fresh.id AND stream = 'core'
"""
_STORE = f"WITH stored AS ({metrics.INSERTION.format(rows='%(rows)s')}), {_SUM}"
_LIFE = """
    WITH seen AS (SELECT id FROM allocations WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE)
    UPDATE allocations SET heartbeat_at = %(at)s FROM seen WHERE allocations.id = seen.id
"""
