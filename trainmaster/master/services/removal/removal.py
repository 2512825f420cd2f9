"""Permanently removes experiments with everything they left, and expired sessions."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy import delete, select, tuple_

from trainmaster.dispatchers.base import DispatcherError
from trainmaster.master.db.tables import (
    Checkpoint,
    Experiment,
    Project,
    Task,
    Trial,
    UserSession,
    Workspace,
    metrics,
    task_logs,
)
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.files import user_files
from trainmaster.master.services.files.uploads import Uploads
from trainmaster.master.services.files.user_files import EVERYTHING, NoFolder, UndeclaredStorage, UserFiles
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.metrics import series_columns
from trainmaster.master.services.orchestration.workspace_tasks import forget as forget_tasks
from trainmaster.master.services.orchestration.workspace_tasks import live_in
from trainmaster.master.services.organisation.workspaces import mark_ended
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import wake
from trainmaster.master.services.tasks.standalone import StandaloneTasks
from trainmaster.storage.contract import StorageFault

log = logging.getLogger(__name__)

WHY_ENDED = "its workspace is being deleted"
TRIALS_AT_ONCE = 500  # whose rows are removed in one transaction
ROWS_AT_ONCE = 20_000  # reports, and lines of logs, that one transaction removes
LONGEST_TURN = 2.0  # seconds, for one experiment before the next one
LONGEST_REST = 1.0  # seconds; else a rest is as long as the step before it


class ExperimentRemoval:
    """Removes deleted experiments in steps, with rests and other experiments' steps in between: one of a hundred
    thousand trials takes minutes."""

    def __init__(self, master: MasterContext, retries: Retries) -> None:
        self._store, self._removal, self._retries = master.store, Removal(master), retries
        self._without_files: set[int] = set()  # experiments whose files this process has removed
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let `go_on` return after the step under way; from another thread."""
        self._stopping.set()

    def go_on(self) -> None:
        """Work on each deleted experiment for a while; wakes the janitor when there is more to do."""
        with self._store.transaction() as session:
            ids = list(session.scalars(select(Experiment.id).where(Experiment.state == State.DELETING.value)))
        self._without_files &= set(ids)
        self._retries.each("the removal of experiment", ids, self._remove)

    def _remove(self, experiment_id: int) -> None:
        """Remove files first, rows last: a crash in between leaves rows that show what is still to be removed."""
        if self._stopping.is_set():
            return
        if experiment_id not in self._without_files:
            if not self._removal.remove_all_files(experiment_id):
                return
            self._removal.remove_archived(experiment_id)
            self._without_files.add(experiment_id)
        turn = time.monotonic()
        while True:
            began = time.monotonic()
            if not self._removal.remove_some(experiment_id):
                log.info("experiment %d is deleted", experiment_id)
                return
            if time.monotonic() - turn >= LONGEST_TURN:
                break
            if self._stopping.wait(min(time.monotonic() - began, LONGEST_REST)):
                return
        with self._store.transaction() as session:
            wake(session, "janitor")


class Removal(BoundService):
    """Removal of what is deleted or has expired."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)
        self._standalone_tasks = StandaloneTasks(master)
        self._uploads = Uploads(master)

    def remove_expired_sessions(self) -> None:
        with self._store.transaction() as session:
            # Access tokens stay in their list as expired ones.
            session.execute(
                delete(UserSession).where(UserSession.expires_at < now(), UserSession.kind == "USER_SESSION")
            )

    def end_tasks(self, retries: Retries) -> None:
        """Kill the tasks of workspaces that are being deleted."""
        with self._store.transaction() as session:
            doomed = list(session.scalars(select(Workspace.id).where(Workspace.state == "DELETING")))
            live = [task_id for number in doomed for task_id in live_in(session, number)]
        retries.each("the end of task", live, lambda task_id: self._standalone_tasks.end(task_id, WHY_ENDED))

    def remove_deleted_projects(self) -> None:
        """Remove projects and workspaces whose experiments and tasks are gone; one with an experiment that could not
        be deleted is marked so. Experiments that have ended since their project was deleted are deleted now."""
        with self._store.transaction() as session:
            ended = (
                Project.state == "DELETING",
                Experiment.state.in_([state.value for state in State if state.terminal]),
            )
            late = select(Experiment).join(Project, Project.id == Experiment.project_id).where(*ended)
            if experiments := list(session.scalars(late.with_for_update(of=Experiment))):
                mark_ended(experiments)
                wake(session, "janitor")
            for project in session.scalars(select(Project).where(Project.state == "DELETING").with_for_update()):
                left = session.execute(
                    select(Experiment.state, Experiment.reason).where(Experiment.project_id == project.id)
                ).all()
                failed = next((row.reason for row in left if row.state == State.DELETE_FAILED), None)
                if failed is not None:
                    project.state, project.error = "DELETE_FAILED", failed
                elif not left:
                    session.delete(project)
            session.flush()
            for workspace in session.scalars(select(Workspace).where(Workspace.state == "DELETING").with_for_update()):
                projects = list(session.scalars(select(Project).where(Project.workspace_id == workspace.id)))
                broken = next((project for project in projects if project.state == "DELETE_FAILED"), None)
                if broken is not None:
                    workspace.state, workspace.error = "DELETE_FAILED", broken.error
                elif not any(project.state for project in projects) and not live_in(session, workspace.id):
                    forget_tasks(session, workspace.id)
                    for project in projects:
                        session.delete(project)
                    session.flush()
                    session.delete(workspace)

    def remove_all_files(self, experiment_id: int) -> bool:
        """Remove the files of a deleted experiment. False where they cannot be removed, or there is no such experiment
        any more. Raises trees.Unfinished."""
        with self._store.transaction() as session:
            query = select(Checkpoint).where(Checkpoint.experiment_id == experiment_id, Checkpoint.state != "DELETED")
            checkpoints = list(session.scalars(query.order_by(Checkpoint.uuid)))
        failure = next(filter(None, (self._remove_files(row) for row in checkpoints)), None)
        failure = failure or self._remove_events(experiment_id) or self._remove_unfinished(experiment_id)
        with self._store.transaction() as session:
            row = session.get(Experiment, experiment_id, with_for_update=True)
            if row is None or row.state != State.DELETING:
                return False
            if failure is not None:
                wake(session, "janitor")  # its project or workspace may be waiting for this
                row.state, row.reason = State.DELETE_FAILED.value, failure
                return False
        log.info(
            "the files of experiment %d are deleted, with those of %d checkpoints", experiment_id, len(checkpoints)
        )
        return True

    def remove_archived(self, experiment_id: int) -> None:
        """Remove reports of attempts that later ones have replaced: no index leads to these few, so that each search
        reads all reports of the master."""
        several = select(Trial.id).where(Trial.experiment_id == experiment_id, Trial.attempts > 1)
        with self._store.transaction() as session:
            if session.scalar(several.limit(1)) is not None:
                session.execute(delete(metrics).where(metrics.c.archived, metrics.c.trial_id.in_(several)))

    def remove_some(self, experiment_id: int) -> bool:
        """Remove some rows of an experiment that is being deleted. False when it is gone."""
        of_trials = select(Trial.id, Trial.task_id, Trial.earlier_tasks).where(Trial.experiment_id == experiment_id)
        with self._store.transaction() as session:
            trials = session.execute(of_trials.order_by(Trial.id).limit(TRIALS_AT_ONCE)).all()
            if not trials:
                wake(session, "janitor")  # its project or workspace may be waiting for this
                session.execute(delete(Experiment).where(Experiment.id == experiment_id))
                return False
            ids = [trial.id for trial in trials]
            tasks = [name for trial in trials for name in (*trial.earlier_tasks, trial.task_id)]
            series_columns.forget(session, ids)
            log_blocks.forget(session, tasks)
            m, lines = metrics.c, task_logs.c
            reports = select(m.id, m.kind).where(m.trial_id.in_(ids), ~m.archived).limit(ROWS_AT_ONCE)
            gone = session.connection().execute(delete(metrics).where(tuple_(m.id, m.kind).in_(reports))).rowcount
            some = select(lines.id).where(lines.task_id.in_(tasks)).limit(ROWS_AT_ONCE)
            gone_lines = session.connection().execute(delete(task_logs).where(lines.id.in_(some))).rowcount
            if max(gone, gone_lines) < ROWS_AT_ONCE:
                session.execute(delete(Trial).where(Trial.id.in_(ids)))
                session.execute(delete(Task).where(Task.task_id.in_(tasks)))
            return True

    def _remove_events(self, experiment_id: int) -> str | None:
        """Remove TensorBoard's files; return why that failed, or None. Raises trees.Unfinished."""
        try:
            with self._store.transaction() as session:
                row = session.get(Experiment, experiment_id)
                if row is None or row.unmanaged:
                    return None  # its program keeps such files
                place = user_files.events_of(session, self._settings, row)
            self._files.remove(place, [EVERYTHING])
        except NoFolder as error:
            log.warning("experiment %s goes without its TensorBoard files: %s", experiment_id, error)
        except OSError as error:
            return f"TensorBoard's files could not be removed from {place.folder}: {error.strerror}."
        except (DispatcherError, StorageFault) as error:
            return f"TensorBoard's files could not be removed from {place.folder}: {error}"
        return None

    def _remove_unfinished(self, experiment_id: int) -> str | None:
        """Remove what jobs began to store; return why that failed, or None."""
        try:
            self._uploads.remove_unfinished(experiment_id)
        except StorageFault as error:
            return f"Unfinished checkpoints could not be removed: {error}"
        return None

    def _remove_files(self, row: Checkpoint) -> str | None:
        """Remove checkpoints' files; return why that failed, or None. Raises trees.Unfinished."""
        try:
            with self._store.transaction() as session:
                place = user_files.of_checkpoint(session, self._settings, row)
            self._files.remove(place, [EVERYTHING])
        except UndeclaredStorage as error:
            log.warning("experiment %s goes without these files: %s", row.experiment_id, error)
        except NoFolder as error:
            return str(error)
        except StorageFault as error:
            return f"Checkpoint {row.uuid} could not be removed: {error}"
        except OSError as error:
            return f"Checkpoint {row.uuid} could not be removed from {place.folder}: {error.strerror}."
        except DispatcherError as error:
            return f"Checkpoint {row.uuid} could not be removed from {place.folder}: {error}"
        return None
