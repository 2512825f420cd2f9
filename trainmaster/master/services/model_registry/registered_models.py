"""The model registry: models, and checkpoints as their versions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from trainmaster.config.names import no_segment
from trainmaster.master.db.model_registry import Model, ModelVersion
from trainmaster.master.db.tables import Checkpoint, Experiment, Project, User, Workspace
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Conflict, Invalid, NotFound
from trainmaster.master.services.experiments import trials
from trainmaster.master.services.experiments.trials import CheckpointView
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.paging import Page, cut

UNCATEGORIZED = 1  # the workspace of models that name none


@dataclass(frozen=True)
class ModelView:
    row: Model
    username: str
    num_versions: int


@dataclass(frozen=True)
class VersionView:
    row: ModelVersion
    username: str
    model: ModelView
    checkpoint: CheckpointView


@dataclass(frozen=True)
class ModelQuery:
    """Filters of the list; empty means no restriction."""

    name: str = ""
    description: str = ""
    model_id: int | None = None
    labels: Sequence[str] = ()
    archived: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[int] = ()
    workspace_ids: Sequence[int] = ()
    workspace_names: Sequence[str] = ()
    sort_by: str = "last_updated_time"
    descending: bool = False


@dataclass(frozen=True)
class ModelPatch:
    """Values to set on a model or a version; None leaves a value as it is. Only a version has `comment`, only a model
    `description`."""

    name: str | None = None
    description: str | None = None
    comment: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None


_VERSIONS = (
    select(func.count()).where(ModelVersion.model_id == Model.__table__.c.id).correlate(Model.__table__)
).scalar_subquery()
SORTS: Mapping[str, ColumnElement[Any]] = {
    "name": Model.__table__.c.name,
    "description": Model.__table__.c.description,
    "creation_time": Model.__table__.c.created_at,
    "last_updated_time": Model.__table__.c.updated_at,
    "num_versions": _VERSIONS,
    "workspace": Model.__table__.c.workspace_id,
}
VERSION_SORTS: Mapping[str, ColumnElement[Any]] = {
    "version": ModelVersion.__table__.c.version,
    "creation_time": ModelVersion.__table__.c.created_at,
}


class RegisteredModels(BoundService):
    """Models, and checkpoints as their versions."""

    # -- models -------------------------------------------------------------------------------------------------------
    def list_page(self, caller: Caller, query: ModelQuery, offset: int, limit: int) -> Page[ModelView]:
        m = Model
        statement = select(m.id).join(User, User.id == m.user_id).join(Workspace, Workspace.id == m.workspace_id)
        if caller.workspaces is not None:
            statement = statement.where(m.workspace_id.in_(caller.workspaces))
        if query.name:
            statement = statement.where(m.name.icontains(query.name, autoescape=True))
        if query.description:
            statement = statement.where(m.description.icontains(query.description, autoescape=True))
        if query.model_id is not None:
            statement = statement.where(m.id == query.model_id)
        for label in query.labels:
            statement = statement.where(m.labels.contains([label]))
        if query.archived is not None:
            statement = statement.where(m.archived == query.archived)
        if query.users or query.user_ids:
            statement = statement.where(or_(User.username.in_(query.users), m.user_id.in_(query.user_ids)))
        if query.workspace_ids or query.workspace_names:
            statement = statement.where(
                or_(m.workspace_id.in_(query.workspace_ids), Workspace.name.in_(query.workspace_names))
            )
        column = SORTS[query.sort_by]
        order = [column.desc(), m.id.desc()] if query.descending else [column, m.id]
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            ids = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
            views = {view.row.id: view for view in _views(session, select(m.id).where(m.id.in_(ids)))}
        return Page([views[key] for key in ids], window)

    def get(self, key: str) -> ModelView:
        """Find a model by name, or by id where `key` is a number. Raises NotFound."""
        with self._store.transaction() as session:
            return _view(session, find(session, key))

    def create(
        self, caller: Caller, patch: ModelPatch, workspace_id: int | None = None, workspace_name: str | None = None
    ) -> ModelView:
        """Create a model. Raises Invalid for an invalid name, Conflict for one that is taken."""
        with self._store.transaction() as session:
            home = _home(session, caller, workspace_id, workspace_name)
            bounds.check_count(session, "things", "You have {} models", Model.user_id == caller.user_id)
            row = Model(
                name=_free_name(session, patch.name or "", None),
                description=patch.description or "",
                notes=patch.notes or "",
                labels=_distinct(patch.labels or ()),
                model_metadata=dict(patch.metadata or {}),
                user_id=caller.user_id,
                workspace_id=home.id,
            )
            session.add(row)
            session.flush()
            return _view(session, row)

    def patch(
        self,
        caller: Caller,
        key: str,
        patch: ModelPatch,
        workspace_id: int | None = None,
        workspace_name: str | None = None,
    ) -> ModelView:
        """Change a model; a named workspace moves it there."""
        with self._store.transaction() as session:
            row = _changeable(session, caller, key)
            _refuse_archived(row)
            if workspace_id or workspace_name:
                row.workspace_id = _home(session, caller, workspace_id, workspace_name).id
            if patch.name is not None:
                row.name = _free_name(session, patch.name, row.id)
            if patch.description is not None:
                row.description = patch.description
            if patch.notes is not None:
                row.notes = patch.notes
            if patch.labels is not None:
                row.labels = _distinct(patch.labels)
            if patch.metadata is not None:
                row.model_metadata = dict(patch.metadata)
            row.updated_at = now()
            session.flush()
            return _view(session, row)

    def set_archived(self, caller: Caller, key: str, archived: bool) -> None:
        with self._store.transaction() as session:
            row = _changeable(session, caller, key)
            row.archived, row.updated_at = archived, now()

    def move(self, caller: Caller, key: str, workspace_id: int) -> None:
        with self._store.transaction() as session:
            row = _changeable(session, caller, key)
            _refuse_archived(row)
            row.workspace_id = _home(session, caller, workspace_id, None).id
            row.updated_at = now()

    def remove(self, caller: Caller, key: str) -> None:
        """Delete a model and its versions; the checkpoints stay."""
        with self._store.transaction() as session:
            row = _changeable(session, caller, key)
            if row.user_id != caller.user_id:
                caller.require(Permission.DELETE_OTHER_USER_MODEL_REGISTRY, row.workspace_id)
            session.delete(row)

    def labels(self, caller: Caller, workspace_id: int | None) -> list[str]:
        """Labels of models, the most frequent first."""
        used = select(func.jsonb_array_elements_text(Model.labels).label("label"))
        if workspace_id is not None:
            used = used.where(Model.workspace_id == workspace_id)
        if caller.workspaces is not None:
            used = used.where(Model.workspace_id.in_(caller.workspaces))
        label = used.subquery().c.label
        with self._store.transaction() as session:
            return list(session.scalars(select(label).group_by(label).order_by(func.count().desc(), label)))

    # -- versions -----------------------------------------------------------------------------------------------------
    def versions(
        self, key: str, sort_by: str, descending: bool, offset: int, limit: int
    ) -> tuple[ModelView, Page[VersionView]]:
        column = VERSION_SORTS[sort_by]
        order = [column.desc(), ModelVersion.id.desc()] if descending else [column, ModelVersion.id]
        with self._store.transaction() as session:
            model = _view(session, find(session, key))
            query = select(ModelVersion).where(ModelVersion.model_id == model.row.id)
            window = cut(offset, limit, model.num_versions)
            rows = list(session.scalars(query.order_by(*order).offset(window.start).limit(window.size)))
            return model, Page([_version_view(session, model, row) for row in rows], window)

    def get_version(self, key: str, number: int) -> VersionView:
        with self._store.transaction() as session:
            model = _view(session, find(session, key))
            return _version_view(session, model, find_version(session, model.row, number))

    def register(self, caller: Caller, key: str, checkpoint: str, patch: ModelPatch) -> VersionView:
        """Register a checkpoint as the next version.

        Raises Invalid, NotFound, Conflict, Forbidden."""
        with self._store.transaction() as session:
            model = registering(session, caller, key, self._clusters.run_as_users)
            row = _registrable(session, caller, checkpoint)
            last = session.scalar(select(func.max(ModelVersion.version)).where(ModelVersion.model_id == model.id)) or 0
            version = ModelVersion(
                model_id=model.id,
                version=last + 1,
                checkpoint=row.uuid,
                name=patch.name or "",
                comment=patch.comment or "",
                notes=patch.notes or "",
                labels=_distinct(patch.labels or ()),
                version_metadata=dict(patch.metadata or {}),
                user_id=caller.user_id,
            )
            session.add(version)
            model.updated_at = now()
            session.flush()
            return _version_view(session, _view(session, model), version)

    def patch_version(self, caller: Caller, key: str, number: int, patch: ModelPatch) -> VersionView:
        with self._store.transaction() as session:
            model = _changeable(session, caller, key, owner=False)
            _refuse_archived(model)
            row = find_version(session, model, number)
            caller.require_owner(f"Version {number} of the model {model.name!r}", row.user_id, model.user_id)
            if patch.name is not None:
                row.name = patch.name
            if patch.comment is not None:
                row.comment = patch.comment
            if patch.notes is not None:
                row.notes = patch.notes
            if patch.labels is not None:
                row.labels = _distinct(patch.labels)
            if patch.metadata is not None:
                row.version_metadata = dict(patch.metadata)
            row.updated_at = model.updated_at = now()
            session.flush()
            return _version_view(session, _view(session, model), row)

    def remove_version(self, caller: Caller, key: str, number: int) -> None:
        """Delete a version. Its checkpoint stays, but is no longer protected from removal."""
        with self._store.transaction() as session:
            model = _changeable(session, caller, key, owner=False)
            row = find_version(session, model, number)
            caller.require_owner(f"Version {number} of the model {model.name!r}", row.user_id, model.user_id)
            if caller.user_id not in (row.user_id, model.user_id):
                caller.require(Permission.DELETE_OTHER_USER_MODEL_VERSION, model.workspace_id)
            session.delete(row)
            model.updated_at = now()


def find(session: Session, key: str, *, lock: bool = False) -> Model:
    """Find a model by name, or by id where `key` is a number. Raises NotFound."""
    query = select(Model).where(Model.id == int(key) if key.isdecimal() and len(key) < 10 else Model.name == key)
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise NotFound(f"There is no model {key!r}.")
    return row


def find_version(session: Session, model: Model, number: int) -> ModelVersion:
    """Find a version by its number. Raises NotFound."""
    query = select(ModelVersion).where(ModelVersion.model_id == model.id, ModelVersion.version == number)
    row = session.scalar(query)
    if row is None:
        raise NotFound(f"The model {model.name!r} has no version {number}.")
    return row


def registering(session: Session, caller: Caller, key: str, run_as_users: bool) -> Model:
    """Load a model that the caller may register versions of, under its row lock. Colleagues' jobs load what is
    registered: where those run as accounts of their own, and no roles control who edits models, only the model's owner
    and administrators may do this. Raises NotFound, Forbidden, Conflict."""
    model = _changeable(session, caller, key, owner=caller.grants is None and run_as_users)
    _refuse_archived(model)
    return model


# -- inside -------------------------------------------------------------------------------------------------------


def _changeable(session: Session, caller: Caller, key: str, *, owner: bool = True) -> Model:
    """Load a model under its row lock; with `owner` only for its owner."""
    row = find(session, key, lock=True)
    if owner:
        caller.require_owner(f"The model {row.name!r}", row.user_id)
    return row


def _refuse_archived(row: Model) -> None:
    if row.archived:
        raise Conflict(f"The model {row.name!r} is archived; unarchive it first.")


def _home(session: Session, caller: Caller, workspace_id: int | None, name: str | None) -> Workspace:
    row = workspaces.by_name(session, name) if name else workspaces.locked(session, workspace_id or UNCATEGORIZED)
    caller.check(row.id, f"There is no workspace {name!r}." if name else f"There is no workspace {row.id}.")
    if row.archived:
        raise Invalid(f"The workspace {row.name!r} is archived; unarchive it first.")
    return row


def _free_name(session: Session, name: str, own_id: int | None) -> str:
    name = name.strip()
    if not name or no_segment(name) or name.isdecimal():
        raise Invalid(
            f"{name!r} cannot be the name of a model: it must not be empty, a number or dots, or have a slash."
        )
    taken = session.scalar(select(Model.id).where(func.lower(Model.name) == name.lower()))
    if taken not in (None, own_id):
        raise AlreadyExists(f"The model {name!r} already exists.")
    return name


def _distinct(labels: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(labels))


def _registrable(session: Session, caller: Caller, key: str) -> Checkpoint:
    try:
        row = session.get(Checkpoint, uuid.UUID(key), with_for_update=True)
    except ValueError:
        raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
    if row is None:
        raise NotFound(f"There is no checkpoint {key}.")
    experiment = session.get_one(Experiment, row.experiment_id) if row.experiment_id is not None else None
    if experiment is not None:
        home = session.get_one(Project, experiment.project_id).workspace_id
        caller.check(home, f"There is no checkpoint {key}.")
    if row.state != "COMPLETED":
        raise Conflict(f"Checkpoint {key} is {row.state}: only one that is whole can be a version of a model.")
    if experiment is not None and experiment.state.startswith("DELET"):
        raise Conflict(f"The experiment of checkpoint {key} is being deleted.")
    return row


def _view(session: Session, row: Model) -> ModelView:
    session.flush()
    (view,) = _views(session, select(Model.id).where(Model.id == row.id))
    return view


def _views(session: Session, ids: Select[int]) -> list[ModelView]:
    query = select(Model, User.username, _VERSIONS).join(User, User.id == Model.user_id).where(Model.id.in_(ids))
    return [ModelView(*row) for row in session.execute(query)]


def _version_view(session: Session, model: ModelView, row: ModelVersion) -> VersionView:
    username = session.scalar(select(User.username).where(User.id == row.user_id)) or ""
    return VersionView(
        row, username, model, trials.view_of_checkpoint(session, session.get_one(Checkpoint, row.checkpoint))
    )
