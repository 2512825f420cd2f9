"""Stores the records of one job's stream, each exactly once, with every decision that they cause."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import update
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.search import awaited
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import check_counts
from trainmaster.master.services.clock import from_epoch, now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.ingest import logs, metrics, streams
from trainmaster.master.services.ingest.checkpoints import (
    RecordContext,
    no_number,
    take_checkpoint,
    take_checkpoint_deleted,
)
from trainmaster.master.services.ingest.logs import JobLogs
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.orchestration.experiment_lock import locked_experiment_in
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.values.stored import Json

HEARTBEAT_GRAIN = 2.0  # seconds: a heartbeat is stored no more often than this


@dataclass(frozen=True)
class ReportAnswer:
    acked: int
    preempt: str | None
    gone: bool  # the attempt has ended for the master: leave


class JobRecords(BoundService):
    """Records of one job at a time, and the status that a trial reports."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._job_logs = JobLogs(master)

    def take_records(self, allocation_id: str, piece: StreamBatch, *, replayed: bool = False) -> ReportAnswer:
        """Take in records of one stream, each exactly once, in order, in one transaction with every decision that they
        cause. Raises Invalid for records that cannot be stored, NotFound."""
        self._job_logs.apply_log_policies({allocation_id: [piece]})
        with storing(f"Records {piece.first} and following of {piece.stream}"), self._store.transaction() as session:
            head = session.execute(streams.HEAD, {"ids": [allocation_id], "ranks": [piece.rank]}).first()
            if head is None:
                raise NotFound(f"There is no allocation {allocation_id}.")
            allocation, experiment_id = head.Allocation, head.experiment_id
            if not replayed:
                check_counts(allocation.ended_at)
            if (
                piece.stream == "core"
                and piece.records
                and experiment_id is not None
                and allocation.trial_id is not None
            ):
                with locked_experiment_in(session, self._settings, experiment_id) as orchestrator:
                    acked = _take_core(session, orchestrator, allocation_id, allocation.trial_id, piece)
                session.flush()
                session.refresh(allocation)
                if not replayed:
                    _sign_of_life(allocation)
            else:
                if not replayed:
                    _sign_of_life(allocation)
                session.flush()  # as at the exit, its lock comes before the stream's; the log's must be the last one
                acked = logs.take_lines(session, allocation, piece, head.names or {})
            gone = allocation.ended_at is not None or allocation.kill_at is not None
            preempt = allocation.preempt_reason or "asked to" if allocation.preempt_at is not None else None
        return ReportAnswer(acked, preempt, gone)

    def set_trial_status(self, trial_id: int, status: str) -> None:
        with self._store.transaction() as session:
            session.execute(update(Trial).where(Trial.id == trial_id).values(runner_state=status[:200]))


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Turn values that cannot be stored into Invalid, in the block: a text with a NUL, a number beyond all columns.
    The sender finds the record by halving and leaves it out."""
    try:
        yield
    except (DataError, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"{what} cannot be stored: {error!r:.300}.") from error


# -- records of a stream ----------------------------------------------------------------------------------------


def _take_core(
    session: Session, orchestrator: ExperimentOrchestrator, allocation_id: str, trial_id: int, piece: StreamBatch
) -> int:
    fresh, acked = streams.unseen(session, allocation_id, piece)
    if not fresh:
        return acked
    trial = session.get_one(Trial, trial_id, with_for_update=True, populate_existing=True)
    allocation = session.get_one(Allocation, allocation_id, with_for_update=True, populate_existing=True)
    intake = RecordContext(session, orchestrator, trial, allocation)
    reports: list[metric_reports.MetricReport] = []
    for record in fresh:
        bounds.check_record(orchestrator.settings.limits, record)
        kind = record.get("kind")
        if kind == "metrics":
            reports.append(report_of(record))
        if kind == "metrics" or not record:
            continue  # an empty record stands for a line that arrived under its number before
        store_reports(orchestrator, trial, allocation.attempt, reports)
        reports = []
        try:
            _TAKE.get(str(kind), _take_unknown)(intake, record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"A record of kind {kind!r} does not fit: {error!r}.") from None
    store_reports(orchestrator, trial, allocation.attempt, reports)
    return acked


def report_of(record: Json) -> metric_reports.MetricReport:
    """Return a record of kind `metrics`, with NaN and infinities as texts. Raises Invalid."""
    measured = record.get("metrics")
    if not isinstance(measured, dict):
        raise Invalid("A metrics record must have an object `metrics`.")
    try:
        steps = int(record.get("steps_completed") or 0)
        at = from_epoch(float(record["t"])) if "t" in record else now()
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise Invalid(f"A metrics record does not fit: {error}.") from None
    return metric_reports.MetricReport(
        group=str(record.get("group", "")),
        steps=steps,
        metrics=finite(measured),
        batch_metrics=finite(record.get("batch_metrics")),
        at=at,
    )


def store_reports(
    orchestrator: ExperimentOrchestrator, trial: Trial, run_id: int, reports: Sequence[metric_reports.MetricReport]
) -> None:
    """Store the reports of one run, in order, and give the validations among them to the searcher."""
    if not reports:
        return
    experiment = orchestrator.row
    name, smaller = experiment.searcher_metric, experiment.smaller_is_better
    spoiled, validated = no_number(trial.latest_validation, name), trial.latest_validation is not None
    fresh = metrics.store_reports(orchestrator.session, trial, run_id, reports, name, smaller)
    value = trial.searcher_metric
    if value is not None and metric_reports.better(value, experiment.best_metric, smaller):
        experiment.best_metric, experiment.best_trial_id = value, trial.id
    for report in fresh:
        if report.group == "validation":
            orchestrator.validated(trial, dict(report.metrics), report.steps)
    shown = no_number(trial.latest_validation, name)
    if shown and not spoiled:
        text = f"The searcher's metric {name!r} is {shown}: it counts as the worst value, and never as the best."
        orchestrator.say(trial.task_id, text, "WARNING")
    searcher = experiment.config.searcher
    if trial.latest_validation is not None and not validated:
        for text in awaited.missing_in(searcher, trial.latest_validation.metrics):
            orchestrator.say(trial.task_id, text, "WARNING")


def _take_progress(intake: RecordContext, record: Json) -> None:
    fraction = float(record.get("progress") or 0.0)
    if math.isfinite(fraction):
        intake.orchestrator.progressed(intake.trial, min(max(fraction, 0.0), 1.0))


def _take_status(intake: RecordContext, record: Json) -> None:
    intake.trial.runner_state = str(record.get("state", ""))[:200]


def _take_metadata(intake: RecordContext, record: Json) -> None:
    kept = {**(intake.trial.run_metadata or {}), **dict(record.get("metadata") or {})}
    bounds.check_metadata(intake.orchestrator.settings.limits, kept)
    intake.trial.run_metadata = kept


def _take_early_exit(intake: RecordContext, record: Json) -> None:
    early_exit(intake.orchestrator, intake.trial, str(record.get("reason", "")))


def early_exit(orchestrator: ExperimentOrchestrator, trial: Trial, reason: str) -> None:
    """Take in the training code's request to end its own trial. Raises Invalid for an unknown reason."""
    if reason in ("EXITED_REASON_INVALID_HP", "EXITED_REASON_INIT_INVALID_HP"):
        why = "the training code says that these hyperparameters are invalid"
        orchestrator.trial_event(trial, trials.Stop(trials.StopCause.INVALID_HP, why))
    elif reason == "EXITED_REASON_USER_REQUESTED_STOP":
        orchestrator.trial_event(trial, trials.Stop(trials.StopCause.USER_STOP, "the training code asked to stop"))
    else:
        raise Invalid(f"There is no exit reason {reason!r}.")


def _take_ack(intake: RecordContext, record: Json) -> None:  # noqa: ARG001
    intake.allocation.preempt_acked = True


def _take_unreadable(intake: RecordContext, record: Json) -> None:
    _refuse(intake, str(record.get("why") or "it is not a report")[:300])


def _take_unknown(intake: RecordContext, record: Json) -> None:
    """Leave out a record of an unknown kind, which a newer runtime may send; never fatal for the records around it."""
    _refuse(intake, f"its kind {str(record.get('kind'))[:60]!r} is unknown")


def _refuse(intake: RecordContext, why: str) -> None:
    """Count a report that is left out for good, and log the cause: of the first one, and whenever they are ten times
    as many."""
    trial = intake.trial
    trial.refused_reports += 1
    count = trial.refused_reports
    if str(count).strip("0") == "1":
        which = "A report was" if count == 1 else f"{count} reports were"
        intake.orchestrator.say(trial.task_id, f"{which} refused for good and left out: {why}", "ERROR")


_TAKE = {
    "progress": _take_progress,
    "status": _take_status,
    "metadata": _take_metadata,
    "early_exit": _take_early_exit,
    "ack_preempt": _take_ack,
    "checkpoint": take_checkpoint,
    "checkpoint_deleted": take_checkpoint_deleted,
    "unreadable": _take_unreadable,
}


# -- inside -----------------------------------------------------------------------------------------------------


def _sign_of_life(allocation: Allocation) -> None:
    heartbeat_at = allocation.heartbeat_at
    if heartbeat_at is None or (now() - heartbeat_at).total_seconds() >= HEARTBEAT_GRAIN:
        allocation.heartbeat_at = now()


def finite(value: Any) -> Any:
    """Return the same JSON with NaN and infinities as the strings that stand for them."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, Mapping):
        # Nearly all values are finite numbers: to call this for each of them would take twice as long.
        return {str(k): v if type(v) is float and math.isfinite(v) else finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value
