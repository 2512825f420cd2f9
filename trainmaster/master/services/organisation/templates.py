"""Templates: named parts of configurations that a workspace shares.

A template holds any mapping, with keys of experiments and of tasks together; its content is checked where it is used.

A template's content becomes part of other people's jobs. So only its owner and administrators may change it; with
roles, and where all jobs run as the master's account, every user whose role permits changing templates may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.masks import MASK
from trainmaster.config.messages import ConfigError
from trainmaster.config.names import no_segment
from trainmaster.config.secrets import masks, unmasked
from trainmaster.config.shapes import Section
from trainmaster.config.source import Document, check_size
from trainmaster.config.task import TaskConfig
from trainmaster.config.validation import check
from trainmaster.master.db.model_registry import Template
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.locations import ABSENT
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Forbidden, Invalid, NotFound
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.values.configs import StoredTask

_OF_THE_REQUEST = frozenset({"slots", "slots_per_trial", "resource_pool"})
UNCATEGORIZED = 1  # the workspace of templates that name none


@dataclass(frozen=True)
class TemplateQuery:
    """Filters of the list; empty means no restriction."""

    name: str = ""
    workspace_ids: Sequence[int] = ()
    descending: bool = False


class Templates(BoundService):
    """Templates of configurations."""

    def list_page(self, caller: Caller, query: TemplateQuery, offset: int, limit: int) -> Page[Template]:
        statement = select(Template)
        if caller.workspaces is not None:
            statement = statement.where(Template.workspace_id.in_(caller.workspaces))
        if query.name:
            statement = statement.where(Template.name.icontains(query.name, autoescape=True))
        if query.workspace_ids:
            statement = statement.where(Template.workspace_id.in_(query.workspace_ids))
        order = Template.name.desc() if query.descending else Template.name
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            rows = list(session.scalars(statement.order_by(order).offset(window.start).limit(window.size)))
        return Page(rows, window)

    def get(self, name: str) -> Template:
        with self._store.transaction() as session:
            return find(session, name)

    def create(self, caller: Caller, name: str, config: Mapping[str, Any], workspace_id: int) -> Template:
        """Create a template. Raises Conflict when the name is taken, Invalid for an invalid configuration."""
        with self._store.transaction() as session:
            if session.get(Template, name) is not None:
                raise AlreadyExists(f"The template {name!r} already exists.")
            return _add(session, caller, name, config, workspace_id)

    def put(self, caller: Caller, name: str, config: Mapping[str, Any], workspace_id: int) -> Template:
        """Create or change a template."""
        with self._store.transaction() as session:
            row = session.get(Template, name, with_for_update=True)
            if row is None:
                return _add(session, caller, name, config, workspace_id)
            self._check_owner(caller, row)
            row.config = _checked(session, unmasked(config, row.config))
            return row

    def set_config(self, caller: Caller, name: str, config: Mapping[str, Any]) -> Template:
        with self._store.transaction() as session:
            row = self._mine(session, caller, name)
            row.config = _checked(session, unmasked(config, row.config))
            return row

    def rename(self, caller: Caller, name: str, new: str) -> Template:
        with self._store.transaction() as session:
            row = self._mine(session, caller, name)
            new = _named(new)
            if new != name and session.get(Template, new) is not None:
                raise AlreadyExists(f"The template {new!r} already exists.")
            row.name = new
            return row

    def remove(self, caller: Caller, name: str) -> None:
        with self._store.transaction() as session:
            session.delete(self._mine(session, caller, name))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _mine(self, session: Session, caller: Caller, name: str) -> Template:
        """Load a template that the caller may change, under its lock. Raises NotFound, Forbidden."""
        row = find(session, name, lock=True)
        self._check_owner(caller, row)
        return row

    def _check_owner(self, caller: Caller, row: Template) -> None:
        caller.check(row.workspace_id, ABSENT.format(row.name))
        if caller.admin or (row.owner_id is not None and caller.owns(row.owner_id)):
            return
        if caller.grants is None or self._clusters.run_as_users:
            raise Forbidden(
                f"The template {row.name!r} belongs to somebody else, and what it says becomes part of others' jobs: "
                "its owner or an administrator can change it. Make one of your own under another name."
            )


def find(session: Session, name: str, *, lock: bool = False) -> Template:
    """Raise NotFound."""
    row = session.get(Template, name, with_for_update=lock)
    if row is None:
        raise NotFound(ABSENT.format(name))
    return row


def for_experiments(row: Template) -> dict[str, Any]:
    """Return a template as a part of an experiment's configuration. Raises Invalid for keys that are not allowed
    there."""
    return _fitting(row, row.config, ExperimentConfig, TaskConfig)


def for_tasks(row: Template) -> dict[str, Any]:
    """Return a template as a part of a task's configuration. Slots and pool come from the request alone, as in
    Determined. Raises Invalid."""
    part = dict(row.config)
    resources = part.get(StoredTask.RESOURCES)
    if isinstance(resources, Mapping):
        part[StoredTask.RESOURCES] = {key: value for key, value in resources.items() if key not in _OF_THE_REQUEST}
    return _fitting(row, part, TaskConfig, ExperimentConfig)


def _add(session: Session, caller: Caller, name: str, config: Mapping[str, Any], workspace_id: int) -> Template:
    bounds.check_count(session, "things", "You have {} templates", Template.owner_id == caller.user_id)
    home = workspaces.locked(session, workspace_id or UNCATEGORIZED)
    caller.check(home.id, f"There is no workspace {home.id}.")
    if home.archived:
        raise Invalid(f"The workspace {home.name!r} is archived; unarchive it first.")
    row = Template(name=_named(name), config=_checked(session, config), workspace_id=home.id, owner_id=caller.user_id)
    session.add(row)
    session.flush()
    return row


def _named(name: str) -> str:
    name = name.strip()
    if not name or no_segment(name):
        raise Invalid(f"{name!r} cannot be the name of a template: it must not be empty or dots, or have a slash.")
    return name


def _checked(session: Session, config: Mapping[str, Any]) -> dict[str, Any]:
    if left := masks(config):
        raise Invalid(f"{left[0]} holds {MASK}, which templates are shown with instead of the real value: write that.")
    try:
        check_size(bounds.limits_of(session), config, "template")
    except ConfigError as error:
        raise Invalid(str(error)) from None
    return dict(config)


def _fitting(row: Template, config: Mapping[str, Any], model: type[Section], others: type[Section]) -> dict[str, Any]:
    """Return the keys of a template that `model` has; keys that only `others` has are left out. Raises Invalid."""
    theirs = {*others.model_fields, *others.ignored} - {*model.model_fields}
    known = {key: value for key, value in config.items() if key not in theirs}
    document = Document(f"template {row.name}", known)
    _, complaints = check(model, document.data, document)
    if complaints:
        raise Invalid(" ".join(f"{complaint}." for complaint in complaints))
    return known
