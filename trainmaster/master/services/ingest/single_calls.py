"""Takes in reports made call by call: by Determined's harness in a job, or by a training that runs elsewhere.

Our own runtime sends numbered records instead (`JobRecords.take_records`), which count once however often they arrive.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Project, Trial
from trainmaster.master.db.upkeep import DeclaredStorage
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid, NotFound
from trainmaster.master.services.events import log_watch
from trainmaster.master.services.events.log_watch import LogWatch
from trainmaster.master.services.files import declared_storage, user_files
from trainmaster.master.services.ingest import checkpoints, records
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json


class SingleCalls(BoundService):
    """Reports that arrive call by call, from the harness or from outside of the master."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)
        self._log_watch = LogWatch(master)

    def take_metrics(self, caller: Caller, trial_id: int, run_id: int, report: metric_reports.MetricReport) -> None:
        """Take in a metric report. Raises Conflict for a run that another one has followed, Invalid, NotFound,
        Forbidden."""
        bounds.check_tree(self._settings.limits, report.metrics, "The report")
        bounds.check_tree(self._settings.limits, report.batch_metrics, "The report's batch_metrics")
        clean = metric_reports.MetricReport(
            report.group,
            report.steps,
            records.finite(report.metrics),
            records.finite(list(report.batch_metrics)) if report.batch_metrics else None,
            report.at,
        )
        with self._reporting(caller, trial_id) as (orchestrator, trial):
            if run_id < trial.attempts:
                raise Conflict(f"Run {run_id} of trial {trial_id} is over: run {trial.attempts} has followed it.")
            if run_id > max(trial.attempts, 1):
                raise Invalid(f"Trial {trial_id} has no run {run_id} yet.")
            records.store_reports(orchestrator, trial, run_id, [clean])

    def take_progress(self, caller: Caller, trial_id: int, fraction: float) -> None:
        with self._reporting(caller, trial_id) as (orchestrator, trial):
            orchestrator.progressed(trial, min(max(fraction, 0.0), 1.0))

    def take_early_exit(self, caller: Caller, trial_id: int, reason: str) -> None:
        with self._reporting(caller, trial_id) as (orchestrator, trial):
            records.early_exit(orchestrator, trial, reason)

    def take_checkpoint(self, caller: Caller, new: NewCheckpoint) -> None:
        """Take in a finished checkpoint; reporting it again changes nothing. Raises Invalid, NotFound, Forbidden."""
        key = user_files.check_id(self._settings, new.key)
        steps = new.metadata.get("steps_completed")
        if not isinstance(steps, int) or isinstance(steps, bool) or not 0 <= steps <= metric_reports.MAX_STEPS:
            raise Invalid("The metadata of a checkpoint must hold steps_completed, a whole number from 0 on.")
        with self._store.transaction() as session:
            trial_id = session.scalar(select(Trial.id).where(Trial.task_id == new.task_id))
            storage = session.get(DeclaredStorage, new.storage_id) if new.storage_id else None
        if trial_id is None:
            raise NotFound(f"There is no task {new.task_id!r} with checkpoints.")
        absent = f"There is no task {new.task_id!r} with checkpoints."
        with self._reporting(caller, trial_id, absent) as (orchestrator, trial):
            _check_owner(caller, trial, orchestrator.row)
            known = orchestrator.session.get(Checkpoint, key)
            if known is not None and known.trial_id != trial.id:
                raise Conflict(f"There is a checkpoint {key} of another trial.")
            declared = storage.config if storage else orchestrator.row.config.checkpoint_storage
            row = Checkpoint(
                uuid=key,
                allocation_id=_allocation(orchestrator.session, trial, new.allocation_id),
                report_time=new.at or now(),
                steps_completed=steps,
                resources=dict(new.resources),
                ckpt_metadata=dict(new.metadata),
                storage=_checked(orchestrator, declared),
            )
            checkpoints.add_checkpoint(orchestrator, trial, row)

    def patch_checkpoint(self, caller: Caller, key: str, left: Mapping[str, int]) -> None:
        """Take in that a checkpoint's writer has removed files of it: `left` are the remaining ones."""
        wanted = _uuid(key)
        bounds.check_files(self._settings.limits, left)
        with self._store.transaction() as session:
            trial_id = session.scalar(select(Checkpoint.trial_id).where(Checkpoint.uuid == wanted))
        if trial_id is None:
            raise NotFound(f"There is no checkpoint {key}.")
        with self._reporting(caller, trial_id, f"There is no checkpoint {key}.") as (orchestrator, trial):
            _check_owner(caller, trial, orchestrator.row)
            row = orchestrator.session.get_one(Checkpoint, wanted, with_for_update=True)
            size, before = sum(left.values()), row.size
            gone = not left and row.state != "DELETED"
            for counted in (trial, orchestrator.row):
                counted.checkpoint_size += size - before
                counted.checkpoint_count -= int(gone)
            row.size = size
            if set(left) != set(row.resources):
                row.state = "PARTIALLY_DELETED" if left else "DELETED"
            row.resources = dict(left)
            orchestrator.session.flush()
            if gone and trial.latest_checkpoint == wanted:
                trial.latest_checkpoint = checkpoints.latest_checkpoint(orchestrator.session, trial.id)

    def prepare(self, caller: Caller, trial_id: int, storage: Mapping[str, Any] | None) -> int:
        """Return the number of the storage that a run writes its checkpoints to; its experiment's where it names none.
        Raises Invalid for files anywhere else: what is removed there later is what the experiment's configuration
        says."""
        with self._reporting(caller, trial_id) as (orchestrator, _):
            config = _checked(orchestrator, StorageRef(storage) if storage else None)
            return declared_storage.number_of(orchestrator.session, config)

    def get_metadata(self, trial_id: int) -> Json:
        with self._store.transaction() as session:
            trial = session.get(Trial, trial_id)
        if trial is None:
            raise NotFound(f"There is no run {trial_id}.")
        return trial.run_metadata or {}

    def set_metadata(self, caller: Caller, trial_id: int, metadata: Json) -> Json:
        """Replace what there is."""
        with self._reporting(caller, trial_id) as (_, trial):
            trial.run_metadata = metadata
            return metadata

    def take_logs(self, caller: Caller, entries: Sequence[LogEntry]) -> None:
        """Take in log lines; lines that are sent again count once. Raises NotFound, Forbidden."""
        by_task: dict[str, list[LogEntry]] = {}
        for entry in entries:
            by_task.setdefault(entry.task_id, []).append(entry)
        self._check_tasks(caller, sorted(by_task))
        with self._store.autocommit() as session:
            for task_id in sorted(by_task):
                if log_store.came_before(session, task_id, [entry.line for entry in by_task[task_id]]):
                    del by_task[task_id]
        for task_id, task_lines in by_task.items():
            lines = [log_watch.WatchedLine(entry.line.log, entry.line.agent_id or "") for entry in task_lines]
            self._log_watch.act_on(task_id, lines.copy)
        with self._store.transaction() as session:
            for task_id in sorted(by_task):
                task_lines = by_task[task_id]
                trial = session.scalar(select(Trial).where(Trial.task_id == task_id))
                if trial is None:
                    raise NotFound(f"There is no task {task_id!r}.")
                allocation = _allocation(session, trial, task_lines[0].allocation_id)
                log_store.append(session, task_id, allocation, [entry.line for entry in task_lines])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _check_tasks(self, caller: Caller, task_ids: Sequence[str]) -> None:
        query = select(Trial, Experiment, Project.workspace_id).join(Experiment, Experiment.id == Trial.experiment_id)
        query = query.join(Project, Project.id == Experiment.project_id)
        with self._store.transaction() as session:
            for task_id in task_ids:
                row = session.execute(query.where(Trial.task_id == task_id)).first()
                if row is None:
                    raise NotFound(f"There is no task {task_id!r}.")
                trial, experiment, home = row
                _check(caller, trial, experiment, home, f"There is no task {task_id!r}.")

    @contextmanager
    def _reporting(
        self, caller: Caller, trial_id: int, absent: str = ""
    ) -> Iterator[tuple[ExperimentOrchestrator, Trial]]:
        """Lock a trial, for its own job or for users who may change it. A report of an unmanaged trial counts as its
        heartbeat. `absent`: the sentence for those who may not see it, if it was not the trial that they named."""
        with self._store.transaction() as session:
            experiment_id = session.scalar(select(Trial.experiment_id).where(Trial.id == trial_id))
        if experiment_id is None:
            raise NotFound(f"There is no trial {trial_id}.")
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            session = orchestrator.session
            home = session.get_one(Project, orchestrator.row.project_id).workspace_id
            trial = session.get(Trial, trial_id, with_for_update=True)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            _check(caller, trial, orchestrator.row, home, absent or f"There is no trial {trial_id}.")
            if State(orchestrator.row.state) in (State.DELETING, State.DELETE_FAILED):
                raise Conflict(f"Experiment {orchestrator.row.id} is being deleted.")
            if orchestrator.row.unmanaged:
                trial.heartbeat_at = now()
            yield orchestrator, trial


@dataclass(frozen=True)
class NewCheckpoint:
    """A reported checkpoint. `task_id`: its task; `storage_id`: the result of `prepare`."""

    key: str
    task_id: str
    allocation_id: str | None
    resources: Mapping[str, int]
    metadata: Mapping[str, Any]
    storage_id: int | None
    at: dt.datetime | None


@dataclass(frozen=True)
class LogEntry:
    """A line of a task's log, as its writer sends it."""

    task_id: str
    line: log_store.NewLogLine
    allocation_id: str | None = None


def _check(caller: Caller, trial: Trial, experiment: Experiment, workspace_id: int, absent: str) -> None:
    if caller.allocation_id is not None:
        if caller.trial_id != trial.id:
            raise Forbidden(f"This token does not belong to trial {trial.id}.")
        return
    caller.require(Permission.UPDATE_EXPERIMENT, workspace_id, absent)
    caller.require_owner(f"Trial {trial.id}", experiment.owner_id)


def _check_owner(caller: Caller, trial: Trial, experiment: Experiment) -> None:
    """Raise Forbidden for anybody but the owner: a trial's checkpoint is loaded as its owner, so roles do not
    suffice."""
    if caller.allocation_id is None and not caller.owns(experiment.owner_id):
        raise Forbidden(f"Trial {trial.id} belongs to somebody else, and so do its checkpoints.")


def _allocation(session: Session, trial: Trial, allocation_id: str | None) -> str | None:
    """Return the named attempt of this trial; programs that run elsewhere send their task's id instead."""
    if not allocation_id:
        return None
    allocation = session.get(Allocation, allocation_id)
    return allocation_id if allocation is not None and allocation.trial_id == trial.id else None


def _checked(orchestrator: ExperimentOrchestrator, declared: StorageRef | None) -> StorageRef:
    storage = declared_storage.resolve_storage(orchestrator.row.config, declared)
    if storage is None and declared is not None and declared_storage.is_bucket(declared):
        return declared
    if storage is None:
        raise Invalid(
            f"Experiment {orchestrator.row.id} keeps its checkpoints in another storage: name this one as "
            "checkpoint_storage in the experiment's configuration."
        )
    return storage


def _uuid(key: str) -> uuid.UUID:
    try:
        return uuid.UUID(key)
    except ValueError:
        raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
