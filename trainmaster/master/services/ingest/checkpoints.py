"""Stores checkpoints that jobs report, and what their reports decide."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Checkpoint, Trial
from trainmaster.master.services import bounds
from trainmaster.master.services.clock import from_epoch, now
from trainmaster.master.services.files import uploads
from trainmaster.master.services.files.declared_storage import ELSEWHERE, is_bucket, number_of, resolve_storage
from trainmaster.master.services.files.user_files import check_id
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json
from trainmaster.master.values.validation import StoredValidation


@dataclass(frozen=True)
class RecordContext:
    """The destination of the records of one report."""

    session: Session
    orchestrator: ExperimentOrchestrator
    trial: Trial
    allocation: Allocation


def no_number(validation: StoredValidation | None, name: str) -> str | None:
    """Return the searcher's metric of a validation, as trials keep it, where that is NaN or infinite."""
    shown = validation.metrics.get(name) if validation else None
    return shown if isinstance(shown, str) and shown in metric_reports.SPECIAL else None


def take_checkpoint(intake: RecordContext, record: Json) -> None:
    resources = {str(path): int(size) for path, size in dict(record.get("resources") or {}).items()}
    steps = int(record.get("steps_completed") or 0)
    row = Checkpoint(
        uuid=check_id(intake.orchestrator.settings, str(record["uuid"])),
        allocation_id=intake.allocation.id,
        report_time=from_epoch(float(record["t"])) if "t" in record else now(),
        steps_completed=steps,
        resources=resources,
        ckpt_metadata={"steps_completed": steps, **dict(record.get("metadata") or {})},
        storage=_storage(intake, record),
    )
    own = intake.orchestrator.row.config.checkpoint_storage
    sent_here = row.storage.in_store and own is not None and row.storage.place == own.place
    if sent_here and (missing := uploads.complete(intake.session, row.uuid, intake.trial.id)):
        text = f"Checkpoint {row.uuid} is not stored: {missing}. The trial continues without it."
        intake.orchestrator.say(intake.trial.task_id, text, "ERROR")
        return
    add_checkpoint(intake.orchestrator, intake.trial, row)


def _storage(intake: RecordContext, record: Json) -> StorageRef:
    """Return the experiment's storage; for files that a job reports elsewhere a placeholder, which the master never
    touches."""
    reported = record.get("storage")
    config = intake.orchestrator.row.config
    known = (
        resolve_storage(config, StorageRef(reported or {})) if isinstance(reported, dict) or reported is None else None
    )
    if known is not None:
        return known
    if isinstance(reported, dict) and is_bucket(StorageRef(reported)):
        return StorageRef(reported)
    intake.orchestrator.say(
        intake.trial.task_id,
        f"Checkpoint {record['uuid']} is kept in a storage that the experiment's configuration does not name: this "
        "master neither reads nor removes its files.",
        "WARNING",
    )
    return ELSEWHERE


def add_checkpoint(orchestrator: ExperimentOrchestrator, trial: Trial, checkpoint: Checkpoint) -> None:
    """Store a finished checkpoint of a trial; reporting it again changes nothing. Raises Invalid for too many files,
    and for too much metadata."""
    limits = orchestrator.settings.limits
    bounds.check_files(limits, checkpoint.resources)
    bounds.check_metadata(limits, checkpoint.ckpt_metadata)
    session = orchestrator.session
    known = session.get(Checkpoint, checkpoint.uuid)
    if known is not None:
        if known.trial_id != trial.id:
            text = f"Checkpoint {checkpoint.uuid} is another trial's, and is left out: each needs an id of its own."
            orchestrator.say(trial.task_id, text, "WARNING")
        return
    checkpoint.trial_id, checkpoint.experiment_id, checkpoint.task_id = trial.id, trial.experiment_id, trial.task_id
    checkpoint.state, checkpoint.storage_id = "COMPLETED", number_of(session, checkpoint.storage)
    checkpoint.size = sum(checkpoint.resources.values())
    shown = trial.latest_validation
    if shown and shown.steps == checkpoint.steps_completed:
        checkpoint.validation = dict(shown.metrics)
        value = metric_reports.number((checkpoint.validation or {}).get(orchestrator.row.searcher_metric))
        checkpoint.metric = value if value is not None and math.isfinite(value) else None
    session.add(checkpoint)
    trial.latest_checkpoint = checkpoint.uuid
    trial.checkpoint_count += 1
    trial.checkpoint_size += checkpoint.size
    orchestrator.row.checkpoint_count += 1
    orchestrator.row.checkpoint_size += checkpoint.size
    session.flush()


def take_checkpoint_deleted(intake: RecordContext, record: Json) -> None:
    checkpoint = intake.orchestrator.session.get(Checkpoint, uuid.UUID(str(record["uuid"])))
    if checkpoint is None or checkpoint.trial_id != intake.trial.id or checkpoint.state == "DELETED":
        return
    for row in (intake.trial, intake.orchestrator.row):
        row.checkpoint_count -= 1
        row.checkpoint_size -= checkpoint.size
    checkpoint.state, checkpoint.resources, checkpoint.size = "DELETED", {}, 0
    uploads.give_up(intake.session, checkpoint.uuid)
    if intake.trial.latest_checkpoint == checkpoint.uuid:
        intake.trial.latest_checkpoint = latest_checkpoint(intake.orchestrator.session, intake.trial.id)


def latest_checkpoint(session: Session, trial_id: int) -> uuid.UUID | None:
    """Return the checkpoint that a trial would continue from."""
    query = select(Checkpoint.uuid).where(Checkpoint.trial_id == trial_id, Checkpoint.state == "COMPLETED")
    return session.scalar(query.order_by(Checkpoint.report_time.desc()).limit(1))
