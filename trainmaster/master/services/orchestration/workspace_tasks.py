"""The standalone tasks of a workspace: finds live ones, and removes all of them with the workspace."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Task, task_logs
from trainmaster.master.services.logs import log_blocks


def live_in(session: Session, workspace_id: int) -> list[str]:
    """Ids of a workspace's tasks that have not ended."""
    live = select(Standalone.task_id).where(Standalone.workspace_id == workspace_id, Standalone.end_time.is_(None))
    return list(session.scalars(live.order_by(Standalone.start_time, Standalone.task_id)))


def forget(session: Session, workspace_id: int) -> None:
    """Remove the tasks of a workspace, all of which must have ended, with their logs."""
    ids = select(Standalone.task_id).where(Standalone.workspace_id == workspace_id)
    log_blocks.forget(session, ids)
    session.execute(delete(task_logs).where(task_logs.c.task_id.in_(ids)))
    session.execute(delete(Task).where(Task.task_id.in_(ids)))
