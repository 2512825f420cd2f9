"""Projects, the folders of experiments inside a workspace."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Experiment, Project, Trial, User, Workspace
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Conflict, Invalid, NotFound
from trainmaster.master.services.orchestration.attempts import keep_workspace
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.paging import Page, cut

KEY = re.compile(r"[A-Za-z0-9]{1,5}")


@dataclass(frozen=True)
class ProjectView:
    """A project with the details that a list shows."""

    row: Project
    username: str
    workspace: Workspace
    num_experiments: int
    num_active: int
    num_runs: int
    last_started: dt.datetime | None


@dataclass(frozen=True)
class ProjectQuery:
    """Filters of the list; empty means no restriction."""

    workspace_id: int | None = None
    name: str = ""
    archived: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[int] = ()
    sort_by: str = "id"
    descending: bool = False


_LAST_STARTED = (
    select(func.max(Experiment.start_time)).where(Experiment.project_id == Project.__table__.c.id).scalar_subquery()
)
SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": Project.__table__.c.id,
    "name": func.lower(Project.__table__.c.name),  # sorted without regard to case
    "description": func.lower(Project.__table__.c.description),
    "creation_time": Project.__table__.c.created_at,
    "last_experiment_start_time": _LAST_STARTED,
}


class Projects(BoundService):
    """Projects of workspaces, with their notes."""

    def list_page(self, caller: Caller, query: ProjectQuery, offset: int, limit: int) -> Page[ProjectView]:
        statement = select(Project.id).join(User, User.id == Project.user_id)
        if caller.workspaces is not None:
            statement = statement.where(Project.workspace_id.in_(caller.workspaces))
        if query.workspace_id is not None:
            statement = statement.where(Project.workspace_id == query.workspace_id)
        if query.name:
            statement = statement.where(Project.name.icontains(query.name, autoescape=True))
        if query.archived is not None:
            statement = statement.where(Project.archived == query.archived)
        if query.users or query.user_ids:
            statement = statement.where(or_(User.username.in_(query.users), Project.user_id.in_(query.user_ids)))
        column = SORTS[query.sort_by]
        order = (
            [column.desc().nulls_last(), Project.id.desc()] if query.descending else [column.nulls_last(), Project.id]
        )
        with self._store.transaction() as session:
            if query.workspace_id is not None:
                workspaces.locked(session, query.workspace_id)
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            ids = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
            by_id = {view.row.id: view for view in _views(session, select(Project.id).where(Project.id.in_(ids)))}
        return Page([by_id[key] for key in ids], window)

    def recent_of(self, caller: Caller, limit: int) -> list[ProjectView]:
        """Projects in which the caller has created experiments, the latest first."""
        last = func.max(Experiment.start_time)
        query = select(Project.id).join(Experiment, Experiment.project_id == Project.id)
        query = query.where(Experiment.owner_id == caller.user_id, ~Project.archived).group_by(Project.id)
        with self._store.transaction() as session:
            ids = list(session.scalars(query.order_by(last.desc(), Project.id).limit(limit)))
            by_id = {view.row.id: view for view in _views(session, select(Project.id).where(Project.id.in_(ids)))}
        return [by_id[key] for key in ids]

    def get(self, project_id: int) -> ProjectView:
        with self._store.transaction() as session:
            return _view(session, project_id)

    def get_by_key(self, caller: Caller, key: str) -> ProjectView:
        with self._store.transaction() as session:
            row = session.scalar(select(Project).where(Project.key == key))
            absent = f"There is no project with the key {key!r}."
            if row is None:
                raise NotFound(absent)
            caller.check(row.workspace_id, absent)
            return _view(session, row.id)

    def create(self, caller: Caller, workspace_id: int, name: str, description: str = "", key: str = "") -> ProjectView:
        with self._store.transaction() as session:
            workspace = workspaces.locked(session, workspace_id)
            _check_takes_projects(workspace)
            if workspace.state:
                raise Conflict(f"The workspace {workspace.name!r} is being deleted.")
            bounds.check_count(session, "things", "You have {} projects", Project.user_id == caller.user_id)
            _free_name(session, workspace_id, name, None)
            chosen = _free_key(session, key, None) if key else _made_key(session, name)
            row = Project(
                name=name,
                description=description,
                key=chosen,
                workspace_id=workspace_id,
                user_id=caller.user_id,
                notes=[],
            )
            session.add(row)
            session.flush()
            return _view(session, row.id)

    def patch(
        self,
        caller: Caller,
        project_id: int,
        *,
        name: str | None = None,
        description: str | None = None,
        key: str | None = None,
    ) -> ProjectView:
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            _refuse_archived(row)
            if name is not None:
                _free_name(session, row.workspace_id, name, row.id)
                row.name = name
            if description is not None:
                row.description = description
            if key is not None:
                row.key = _free_key(session, key, row.id)
            session.flush()
            return _view(session, project_id)

    def set_archived(self, caller: Caller, project_id: int, archived: bool) -> None:
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            if session.get_one(Workspace, row.workspace_id).archived:
                raise Invalid(f"The workspace of project {row.name!r} is archived; unarchive that first.")
            row.archived = archived

    def remove(self, caller: Caller, project_id: int) -> bool:
        """Delete a project with its experiments. True when that is done; False while the controller is still removing
        them."""
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            if workspaces.begin_removal(session, [project_id]):
                return False
            session.delete(row)
            return True

    def move(self, caller: Caller, project_id: int, workspace_id: int) -> None:
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            _refuse_archived(row)
            target = workspaces.locked(session, workspace_id)
            caller.require(Permission.CREATE_PROJECT, workspace_id, f"There is no workspace {workspace_id}.")
            _check_takes_projects(target)
            _free_name(session, workspace_id, row.name, row.id)
            keep_workspace(session, Experiment.project_id == row.id, session.get_one(Workspace, row.workspace_id))
            row.workspace_id = workspace_id

    def add_note(self, caller: Caller, project_id: int, name: str, contents: str) -> list[dict[str, Any]]:
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            row.notes = [*row.notes, {"name": name, "contents": contents}]
            return row.notes

    def set_notes(self, caller: Caller, project_id: int, notes: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
        with self._store.transaction() as session:
            row = changeable(session, caller, project_id)
            row.notes = [dict(note) for note in notes]
            return row.notes


def _check_takes_projects(workspace: Workspace) -> None:
    """Raise Invalid."""
    if workspace.immutable:
        raise Invalid(f"The workspace {workspace.name!r} is immutable: it takes no further projects.")
    if workspace.archived:
        raise Invalid(f"The workspace {workspace.name!r} is archived; unarchive it first.")


def changeable(session: Session, caller: Caller, project_id: int) -> Project:
    """Load the row under its lock. Raises NotFound, Forbidden, Invalid."""
    row = session.get(Project, project_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no project {project_id}.")
    workspace = session.get_one(Workspace, row.workspace_id)
    caller.require_owner(f"The project {row.name!r}", row.user_id, workspace.user_id)
    if row.immutable:
        raise Invalid(f"The project {row.name!r} always stays as it is.")
    return row


def open_for(session: Session, caller: Caller, project_id: int) -> Project:
    """Return a project that may take experiments of the caller. Raises NotFound, Forbidden, Invalid."""
    row = session.get(Project, project_id)
    if row is None:
        raise NotFound(f"There is no project {project_id}.")
    caller.check(row.workspace_id, f"There is no project {project_id}.")
    if row.archived or session.get_one(Workspace, row.workspace_id).archived:
        raise Invalid(f"The project {row.name!r} is archived; unarchive it first.")
    if row.state:
        raise Conflict(f"The project {row.name!r} is being deleted.")
    return row


# -- inside -------------------------------------------------------------------------------------------------------


def _refuse_archived(row: Project) -> None:
    if row.archived:
        raise Invalid(f"The project {row.name!r} is archived; unarchive it first.")


def _free_name(session: Session, workspace_id: int, name: str, own_id: int | None) -> None:
    taken = session.scalar(select(Project.id).where(Project.workspace_id == workspace_id, Project.name == name))
    if taken not in (None, own_id):
        raise AlreadyExists(f"The project {name!r} already exists in that workspace.")


def _free_key(session: Session, key: str, own_id: int | None) -> str:
    if not KEY.fullmatch(key):
        raise Invalid(f"{key!r} cannot be a project's key: it has one to five letters and digits.")
    taken = session.scalar(select(Project.id).where(func.upper(Project.key) == key.upper()))
    if taken not in (None, own_id):
        raise AlreadyExists(f"A project with the key {key!r} already exists.")
    return key


def _made_key(session: Session, name: str) -> str:
    """Return a free key: three letters of the name, else with a number, else a number alone."""
    prefix = re.sub(r"[^A-Z0-9]", "", name.upper().encode("ascii", "ignore").decode())[:3] or "P"
    taken = set(session.scalars(select(func.upper(Project.key)).where(func.upper(Project.key).startswith(prefix))))
    endings = ["", *map(str, range(2, 10 ** (5 - len(prefix))))]
    return next((prefix + ending for ending in endings if prefix + ending not in taken), "") or _number(session)


def _number(session: Session) -> str:
    taken = set(session.scalars(select(Project.key)))
    return next(str(number) for number in range(1, 10**5) if str(number) not in taken)


def _view(session: Session, project_id: int) -> ProjectView:
    views = _views(session, select(Project.id).where(Project.id == project_id))
    if not views:
        raise NotFound(f"There is no project {project_id}.")
    return views[0]


def _views(session: Session, ids: Select[int]) -> list[ProjectView]:
    inside = Experiment.project_id == Project.id
    count = select(func.count()).select_from(Experiment).where(inside)
    active = count.where(Experiment.end_time.is_(None))
    runs = select(func.count()).select_from(Trial).join(Experiment, Experiment.id == Trial.experiment_id).where(inside)
    query = (
        select(
            Project,
            User.username,
            Workspace,
            count.scalar_subquery(),
            active.scalar_subquery(),
            runs.scalar_subquery(),
            _LAST_STARTED,
        )
        .join(User, User.id == Project.user_id)
        .join(Workspace, Workspace.id == Project.workspace_id)
        .where(Project.id.in_(ids))
    )
    return [ProjectView(*row) for row in session.execute(query)]
