"""Workspaces, which contain projects, with the defaults that apply inside them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, func, or_, select
from sqlalchemy.orm import Session

from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.masks import MASK
from trainmaster.config.secrets import masks, unmasked
from trainmaster.config.source import Document
from trainmaster.config.storage import NOT_OF_USERS, SITE_ONLY, incomplete
from trainmaster.config.validation import check
from trainmaster.master.db.model_registry import Model, ModelVersion
from trainmaster.master.db.organisation import RoleAssignment, WorkspacePin
from trainmaster.master.db.tables import Checkpoint, Experiment, Project, User, Workspace
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services import bounds
from trainmaster.master.services.access.accounts import Account, check_account
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Conflict, Invalid, NotFound
from trainmaster.master.services.orchestration import workspace_tasks
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import wake
from trainmaster.master.values.storage import StorageRef

LIVE = (State.ACTIVE, State.PAUSED)  # states of experiments that must be ended before they are deleted


@dataclass(frozen=True)
class WorkspaceView:
    """A workspace with the details that a list shows. `pinned_at`: when the caller pinned it."""

    row: Workspace
    username: str
    num_projects: int
    num_experiments: int
    pinned_at: dt.datetime | None


@dataclass(frozen=True)
class WorkspaceQuery:
    """Filters of the list; empty means no restriction. `exact`: a case-sensitive name; `name`: a part of one."""

    name: str = ""
    exact: str = ""
    archived: bool | None = None
    pinned: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[int] = ()
    sort_by: str = "id"
    descending: bool = False


@dataclass(frozen=True)
class WorkspaceChange:
    """Values to set; None leaves a value as it is. An empty `checkpoint_storage` removes the setting."""

    name: str | None = None
    account: Account | None = None
    checkpoint_storage: Mapping[str, Any] | None = None
    compute_pool: str | None = None
    aux_pool: str | None = None


SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": Workspace.__table__.c.id,
    "name": func.lower(Workspace.__table__.c.name),  # sorted without regard to case
}


class Workspaces(BoundService):
    """Workspaces and their defaults."""

    def list_page(self, caller: Caller, query: WorkspaceQuery, offset: int, limit: int) -> Page[WorkspaceView]:
        w = Workspace
        pin = exists().where(WorkspacePin.workspace_id == w.id, WorkspacePin.user_id == caller.user_id)
        statement = select(w.id).join(User, User.id == w.user_id)
        if caller.workspaces is not None:
            statement = statement.where(w.id.in_(caller.workspaces))
        if query.name:
            statement = statement.where(w.name.icontains(query.name, autoescape=True))
        if query.exact:
            statement = statement.where(w.name == query.exact)
        if query.archived is not None:
            statement = statement.where(w.archived == query.archived)
        if query.pinned is not None:
            statement = statement.where(pin if query.pinned else ~pin)
        if query.users or query.user_ids:
            statement = statement.where(or_(User.username.in_(query.users), w.user_id.in_(query.user_ids)))
        column = SORTS[query.sort_by]
        order = [column.desc(), w.id.desc()] if query.descending else [column, w.id]
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            chosen = statement.order_by(*order).offset(window.start).limit(window.size)
            by_id = {view.row.id: view for view in _views(session, caller, chosen)}
            ids = list(session.scalars(chosen))
        return Page([by_id[key] for key in ids], window)

    def get(self, caller: Caller, workspace_id: int) -> WorkspaceView:
        with self._store.transaction() as session:
            return _view(session, caller, workspace_id)

    def create(self, caller: Caller, change: WorkspaceChange) -> WorkspaceView:
        """Create a workspace. With roles, its creator gets the role that the site configures for this. Raises Conflict
        for a name that is taken."""
        with self._store.transaction() as session:
            if change.account is not None:
                caller.require(Permission.SET_WORKSPACE_AGENT_USER_GROUP)
            bounds.check_count(session, "things", "You have {} workspaces", Workspace.user_id == caller.user_id)
            row = Workspace(name=_free_name(session, change.name or "", None), user_id=caller.user_id)
            self._apply(row, change)
            session.add(row)
            session.flush()
            session.add(WorkspacePin(user_id=caller.user_id, workspace_id=row.id))
            if caller.grants is not None and self._settings.creators_role is not None:
                session.add(
                    RoleAssignment(role_id=self._settings.creators_role, user_id=caller.user_id, workspace_id=row.id)
                )
                session.flush()
            return _view(session, caller, row.id)

    def patch(self, caller: Caller, workspace_id: int, change: WorkspaceChange) -> WorkspaceView:
        with self._store.transaction() as session:
            _refuse_fixed(locked(session, workspace_id))  # for all callers, administrators included
            row = _changeable(session, caller, workspace_id)
            for permission, wanted in (
                (Permission.SET_WORKSPACE_AGENT_USER_GROUP, change.account),
                (Permission.SET_WORKSPACE_CHECKPOINT_STORAGE_CONFIG, change.checkpoint_storage),
                (Permission.SET_WORKSPACE_DEFAULT_RESOURCE_POOL, change.compute_pool),
                (Permission.SET_WORKSPACE_DEFAULT_RESOURCE_POOL, change.aux_pool),
            ):
                if wanted is not None:
                    caller.require(permission, workspace_id)
            if change.name is not None:
                row.name = _free_name(session, change.name, row.id)
            self._apply(row, change)
            session.flush()
            return _view(session, caller, workspace_id)

    def set_archived(self, caller: Caller, workspace_id: int, archived: bool) -> None:
        """Archive or unarchive a workspace with all its projects."""
        with self._store.transaction() as session:
            row = _changeable(session, caller, workspace_id)
            row.archived = archived
            for project in session.scalars(select(Project).where(Project.workspace_id == workspace_id)):
                project.archived = archived

    def set_pinned(self, caller: Caller, workspace_id: int, pinned: bool) -> None:
        """Pin or unpin a workspace for the caller alone."""
        with self._store.transaction() as session:
            locked(session, workspace_id)
            own_pin = (WorkspacePin.user_id == caller.user_id) & (WorkspacePin.workspace_id == workspace_id)
            if not pinned:
                session.execute(delete(WorkspacePin).where(own_pin))
            elif session.scalar(select(WorkspacePin).where(own_pin)) is None:
                session.add(WorkspacePin(user_id=caller.user_id, workspace_id=workspace_id))

    def remove(self, caller: Caller, workspace_id: int) -> bool:
        """Delete a workspace with its contents; its tasks are killed first. True when that is done; False while the
        controller is still removing it. Raises Conflict while an experiment is active or paused."""
        with self._store.transaction() as session:
            row = _changeable(session, caller, workspace_id)
            projects = list(session.scalars(select(Project.id).where(Project.workspace_id == workspace_id)))
            live = workspace_tasks.live_in(session, workspace_id)
            if begin_removal(session, projects) or live:
                row.state, row.error = "DELETING", ""
                wake(session, "janitor")
                return False
            workspace_tasks.forget(session, workspace_id)
            session.execute(delete(Project).where(Project.workspace_id == workspace_id))
            session.delete(row)
            return True

    def _apply(self, row: Workspace, change: WorkspaceChange) -> None:
        if change.account is not None:
            account = check_account(change.account)
            row.agent_uid, row.agent_user = account.uid, account.user
            row.agent_gid, row.agent_group = account.gid, account.group
        if change.checkpoint_storage is not None:
            known = row.checkpoint_storage.to_json() if row.checkpoint_storage is not None else {}
            storage = _checked_storage(unmasked(change.checkpoint_storage, known))
            row.checkpoint_storage = StorageRef(storage) if storage is not None else None
        if change.compute_pool is not None:
            row.compute_pool = change.compute_pool and self._clusters.resolve(change.compute_pool, 1).pool.name
        if change.aux_pool is not None:
            row.aux_pool = change.aux_pool and self._clusters.resolve(change.aux_pool, 0).pool.name


def begin_removal(session: Session, projects: Sequence[int]) -> bool:
    """Mark the projects and their experiments for deletion. False when there is no experiment: nothing was marked.
    Those that are ending, as killed ones whose jobs still run, are marked by `mark_ended` once they have ended.

    Raises Conflict while an experiment is active or paused.
    """
    experiments = list(session.scalars(select(Experiment).where(Experiment.project_id.in_(projects)).with_for_update()))
    live = sorted(row.id for row in experiments if row.state in LIVE)
    if live:
        shown = ", ".join(map(str, live[:5])) + (" ..." if len(live) > 5 else "")
        raise Conflict(f"Experiments that have not ended stand in it ({shown}): kill them first.")
    refuse_registered(session, [row.id for row in experiments])
    mark_ended(experiments)
    if experiments:
        for project in session.scalars(select(Project).where(Project.id.in_(projects))):
            project.state, project.error = "DELETING", ""
        wake(session, "janitor")
    return bool(experiments)


def mark_ended(experiments: Sequence[Experiment]) -> None:
    """Mark those of the experiments for deletion that have ended, or whose deletion failed before."""
    for row in experiments:
        if not State(row.state).stopping:
            row.state, row.reason = State.DELETING.value, ""


def refuse_registered(session: Session, experiments: Sequence[int]) -> None:
    """Raise Conflict when a version of a model is a checkpoint of one of these experiments."""
    query = (
        select(Model.name, ModelVersion.version)
        .join(ModelVersion, ModelVersion.model_id == Model.id)
        .join(Checkpoint, Checkpoint.uuid == ModelVersion.checkpoint)
        .where(Checkpoint.experiment_id.in_(experiments))
    )
    if used := session.execute(query.order_by(Model.name, ModelVersion.version).limit(1)).first():
        raise Conflict(
            f"Version {used.version} of the model {used.name!r} is a checkpoint of it: delete that version first."
        )


def locked(session: Session, workspace_id: int) -> Workspace:
    """Load the row under its lock. Raises NotFound."""
    row = session.get(Workspace, workspace_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no workspace {workspace_id}.")
    return row


def check_listable(session: Session, caller: Caller, workspace_id: int) -> None:
    """Raise NotFound, with the same sentence, for a workspace that is not there, is being deleted, or that the caller
    may not see."""
    row = session.get(Workspace, workspace_id)
    if row is None or row.state == "DELETING" or not caller.sees(workspace_id):
        raise NotFound(f"There is no workspace {workspace_id}: it is not found.")


def by_name(session: Session, name: str) -> Workspace:
    row = session.scalar(select(Workspace).where(Workspace.name == name))
    if row is None:
        raise NotFound(f"There is no workspace {name!r}.")
    return row


# -- inside -------------------------------------------------------------------------------------------------------


def _changeable(session: Session, caller: Caller, workspace_id: int) -> Workspace:
    """Load the row under its lock. Raises NotFound, Forbidden, Invalid."""
    row = locked(session, workspace_id)
    caller.require_owner(f"The workspace {row.name!r}", row.user_id)
    _refuse_immutable(row)
    return row


def _refuse_immutable(row: Workspace) -> None:
    if row.immutable:
        raise Invalid(f"The workspace {row.name!r} is immutable: it always stays as it is.")


def _refuse_fixed(row: Workspace) -> None:
    _refuse_immutable(row)
    if row.archived:
        raise Invalid(f"The workspace {row.name!r} is archived; unarchive it first.")


def _free_name(session: Session, name: str, own_id: int | None) -> str:
    taken = session.scalar(select(Workspace.id).where(Workspace.name == name))
    if taken not in (None, own_id):
        raise AlreadyExists(f"The workspace {name!r} already exists.")
    return name


def _checked_storage(storage: Mapping[str, Any]) -> dict[str, Any] | None:
    if not storage:
        return None
    if left := masks(storage):
        raise Invalid(
            f"checkpointStorageConfig.{left[0]} holds {MASK}, which workspaces are shown with instead of the real "
            "value: write that."
        )
    document = Document("checkpointStorageConfig", {"checkpoint_storage": dict(storage)})
    _, complaints = check(ExperimentConfig, document.data, document)
    lacks = [document.complain(("checkpoint_storage", *key), message) for key, message in incomplete(storage)]
    of_site = [key for key in SITE_ONLY if storage.get(key) is not None]
    lacks += [document.complain(("checkpoint_storage", key), NOT_OF_USERS) for key in of_site]
    if complaints := complaints or lacks:
        raise Invalid(" ".join(f"{complaint}." for complaint in complaints))
    return dict(storage)


def _view(session: Session, caller: Caller, workspace_id: int) -> WorkspaceView:
    views = _views(session, caller, select(Workspace.id).where(Workspace.id == workspace_id))
    if not views:
        raise NotFound(f"There is no workspace {workspace_id}.")
    return views[0]


def _views(session: Session, caller: Caller, ids: Select[int]) -> list[WorkspaceView]:
    projects = select(func.count()).where(Project.workspace_id == Workspace.id).scalar_subquery()
    experiments = (
        select(func.count())
        .select_from(Experiment)
        .join(Project, Project.id == Experiment.project_id)
        .where(Project.workspace_id == Workspace.id)
        .scalar_subquery()
    )
    pinned = select(WorkspacePin.pinned_at).where(
        WorkspacePin.workspace_id == Workspace.id, WorkspacePin.user_id == caller.user_id
    )
    query = (
        select(Workspace, User.username, projects, experiments, pinned.scalar_subquery())
        .join(User, User.id == Workspace.user_id)
        .where(Workspace.id.in_(ids))
    )
    return [WorkspaceView(*row) for row in session.execute(query)]
