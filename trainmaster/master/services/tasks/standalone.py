"""Lists, gets, ends, pauses and resumes standalone tasks."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, literal, select
from sqlalchemy.orm import undefer

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Task, User, Workspace
from trainmaster.master.lifecycle import standalone as machine
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.orchestration.task_orchestrator import GENERIC, KINDS, locked_task
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.paging import Page, cut

_t = Standalone.__table__.c
SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": _t.task_id,
    "description": _t.description,
    "start_time": _t.start_time,
    "workspace_id": _t.workspace_id,
}


@dataclass(frozen=True)
class TaskView:
    """A task with the details of its owner and of its latest attempt that lists show."""

    row: Standalone
    job_id: uuid.UUID
    username: str
    display_name: str
    latest: Allocation | None


@dataclass(frozen=True)
class TaskQuery:
    """Filters of a list; empty means no restriction."""

    kind: str
    usernames: Sequence[str] = ()
    user_ids: Sequence[int] = ()
    workspace_id: int = 0
    sort_by: str = "start_time"
    descending: bool = False


def _views() -> Select[Standalone, uuid.UUID, str, str | None, Allocation | None]:
    latest = and_(Allocation.task_id == Standalone.task_id, Allocation.attempt == Standalone.attempts)
    return (
        select(Standalone, Task.job_id, User.username, User.display_name, Allocation)
        .join(Task, Task.task_id == Standalone.task_id)
        .join(User, User.id == Standalone.owner_id)
        .outerjoin(Allocation, latest)
    )


def _view(row: Any) -> TaskView:
    task, job_id, username, display_name, latest = row
    return TaskView(task, job_id, username, display_name or "", latest)


class StandaloneTasks(BoundService):
    """Standalone tasks."""

    def list_page(self, caller: Caller, query: TaskQuery, offset: int, limit: int) -> Page[TaskView]:
        going = select(Workspace.id).where(Workspace.state == "DELETING")
        conditions = [Standalone.kind == query.kind, Standalone.workspace_id.not_in(going)]
        if caller.workspaces is not None:
            conditions.append(Standalone.workspace_id.in_(caller.workspaces))
        if query.workspace_id:
            conditions.append(Standalone.workspace_id == query.workspace_id)
        if query.user_ids:
            conditions.append(Standalone.owner_id.in_(query.user_ids))
        if query.usernames:
            names = [name.strip().lower() for name in query.usernames]
            conditions.append(Standalone.owner_id.in_(select(User.id).where(User.username.in_(names))))
        column = SORTS[query.sort_by]
        order = (column.desc(), _t.task_id.desc()) if query.descending else (column, _t.task_id)
        with self._store.transaction() as session:
            if query.workspace_id:
                workspaces.check_listable(session, caller, query.workspace_id)
            total = session.scalar(select(func.count()).select_from(Standalone).where(*conditions)) or 0
            window = cut(offset, limit, total)
            rows = session.execute(_views().where(*conditions).order_by(*order).offset(window.start).limit(window.size))
            return Page([_view(row) for row in rows], window)

    def get(self, task_id: str, kind: str = "") -> TaskView:
        """Get a task with its keys and its submitted configuration. `kind`: it must be of this kind. Raises
        NotFound."""
        with self._store.autocommit() as session:
            undeferred = (undefer(Standalone.secrets), undefer(Standalone.given))
            query = _views().where(Standalone.task_id == task_id).options(*undeferred)
            row = session.execute(query).first()
        if row is None or kind not in ("", row[0].kind):
            raise NotFound(f"There is no {kind.lower() or 'task'} {task_id}.")
        return _view(row)

    def counts(self, workspaces: frozenset[int] | None) -> dict[str, int]:
        """Return the number of live tasks of each kind; in these workspaces, or in all."""
        query = select(Standalone.kind, func.count()).where(Standalone.end_time.is_(None)).group_by(Standalone.kind)
        if workspaces is not None:
            query = query.where(Standalone.workspace_id.in_(workspaces))
        with self._store.autocommit() as session:
            counts = dict(session.execute(query).all())
        return {kind: counts.get(kind, 0) for kind in KINDS}

    def kill(self, caller: Caller, task_id: str, kind: str = "", *, root: bool = False) -> None:
        """End a task and the tasks that it started, or with `root` all of its family. An ended one stays as it is."""
        view = self.get(task_id, kind)
        _own(caller, view.row)
        top = self._root(task_id) if root else task_id
        for member in self._family(caller, top):
            with self._store.transaction() as session, locked_task(session, self._settings, member) as orchestrator:
                orchestrator.event(machine.Kill(f"killed by {caller.username}"))

    def end(self, task_id: str, why: str) -> None:
        """End a task for the master's own reasons. One that has ended, or is gone, stays as it is."""
        with (
            contextlib.suppress(NotFound),
            self._store.transaction() as session,
            locked_task(session, self._settings, task_id) as orchestrator,
        ):
            orchestrator.event(machine.Kill(why))

    def pause(self, caller: Caller, task_id: str) -> None:
        """Pause a generic task and the tasks that it started: they are asked to save their work and leave. Raises
        Conflict for one that cannot be paused; such a task among those that it started stays as it is."""
        self._act(caller, task_id, machine.Pause(f"paused by {caller.username}"))

    def unpause(self, caller: Caller, task_id: str) -> None:
        """Resume a task and the tasks that it started."""
        self._act(caller, task_id, machine.Unpause())

    def _act(self, caller: Caller, task_id: str, event: machine.Event) -> None:
        view = self.get(task_id)
        if view.row.kind != GENERIC:
            raise Invalid(f"Task {task_id} is a {view.row.kind.lower()}; only generic tasks can be paused.")
        _own(caller, view.row)
        for member in self._family(caller, task_id):
            with self._store.transaction() as session, locked_task(session, self._settings, member) as orchestrator:
                if member == task_id or _possible(orchestrator.row, event):
                    orchestrator.event(event)

    def _family(self, caller: Caller, task_id: str) -> list[str]:
        """Return a task and its descendants; parents first. Raises Forbidden when one of them is in a workspace where
        the caller lacks the request's permission."""
        top = select(Standalone.task_id, literal(0).label("depth")).where(Standalone.task_id == task_id)
        tree = top.cte(recursive=True)
        below = select(Standalone.task_id, tree.c.depth + 1).join(tree, Standalone.parent_id == tree.c.task_id)
        whole = tree.union_all(below)
        members = select(whole.c.task_id, Standalone.workspace_id).join(
            Standalone, Standalone.task_id == whole.c.task_id
        )
        with self._store.autocommit() as session:
            rows = session.execute(members.order_by(whole.c.depth, whole.c.task_id)).all()
        for member, workspace_id in rows:
            caller.check(workspace_id, f"There is no task {member}.")
        return [member for member, _ in rows]

    def _root(self, task_id: str) -> str:
        with self._store.autocommit() as session:
            while parent := session.scalar(select(Standalone.parent_id).where(Standalone.task_id == task_id)):
                task_id = parent
        return task_id


def _possible(row: Standalone, event: machine.Event) -> bool:
    try:
        machine.step(machine.Task(machine.TaskState(row.state), pausable=row.pausable, allocated=True), event)
    except machine.NotPossible:
        return False
    return True


def _own(caller: Caller, row: Standalone) -> None:
    caller.require_owner(f"The task {row.task_id}", row.owner_id)
