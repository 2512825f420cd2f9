"""Removing for good: experiments with everything they left, and sessions that have expired."""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select

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
from trainmaster.master.services import log_blocks, series_columns
from trainmaster.master.services.clock import now
from trainmaster.master.services.store import Store

log = logging.getLogger(__name__)


def remove_deleted_experiments(store: Store) -> None:
    with store.transaction() as session:
        ids = list(session.scalars(select(Experiment.id).where(Experiment.state == State.DELETING.value)))
    for experiment_id in ids:
        _remove(store, experiment_id)


def remove_expired_sessions(store: Store) -> None:
    with store.transaction() as session:
        # Access tokens stay in their list as expired ones.
        session.execute(delete(UserSession).where(UserSession.expires_at < now(), UserSession.kind == "USER_SESSION"))


def remove_deleted_projects(store: Store) -> None:
    """Projects and workspaces whose experiments are gone; those with one that could not be deleted say so."""
    with store.transaction() as session:
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
            elif all(project.state == "" for project in projects):
                for project in projects:
                    session.delete(project)
                session.flush()
                session.delete(workspace)


def _remove(store: Store, experiment_id: int) -> None:
    """Files first, rows last: a crash in between leaves rows that say what is still to be removed."""
    with store.transaction() as session:
        query = select(Checkpoint.uuid, Checkpoint.storage).where(Checkpoint.experiment_id == experiment_id)
        checkpoints = [(key, storage) for key, storage in session.execute(query)]
    failure = next(filter(None, (_remove_files(key, storage) for key, storage in checkpoints)), None)
    with store.transaction() as session:
        row = session.get(Experiment, experiment_id, with_for_update=True)
        if row is None or row.state != State.DELETING:
            return
        if failure is not None:
            row.state, row.reason = State.DELETE_FAILED.value, failure
            return
        trials = session.execute(select(Trial.id, Trial.task_id).where(Trial.experiment_id == experiment_id)).all()
        ids, tasks = [trial.id for trial in trials], [trial.task_id for trial in trials]
        series_columns.forget(session, ids)
        log_blocks.forget(session, tasks)
        session.execute(delete(metrics).where(metrics.c.trial_id.in_(ids)))
        session.execute(delete(task_logs).where(task_logs.c.task_id.in_(tasks)))
        session.execute(delete(Experiment).where(Experiment.id == experiment_id))
        session.execute(delete(Task).where(Task.task_id.in_(tasks)))
    log.info("experiment %d is deleted, with %d checkpoints", experiment_id, len(checkpoints))


def checkpoint_folder(key: uuid.UUID, storage: dict[str, Any]) -> Path | None:
    """Where a checkpoint lies, when its storage is a file system."""
    if storage.get("type") == "shared_fs":
        root = Path(storage["host_path"])
        return (root / storage["storage_path"] if storage.get("storage_path") else root) / str(key)
    if storage.get("type") == "directory":
        return Path(storage["container_path"]) / str(key)
    return None


def _remove_files(key: uuid.UUID, storage: dict[str, Any]) -> str | None:
    folder = checkpoint_folder(key, storage)
    if folder is None:
        return f"Checkpoint {key} lies in {storage.get('type')!r} storage, which this master cannot remove from."
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"Checkpoint {key} could not be removed from {folder}: {error.strerror}."
    return None
