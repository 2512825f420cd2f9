"""Computes the updates that a follower of projects, models and model versions must receive.

No history of changes is kept: what a follower knows is compared with what they may see now. So a broken connection, a
row that left what they may see and a row that entered it need no special handling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select

from trainmaster.master.db import changes
from trainmaster.master.db.model_registry import Model, ModelVersion
from trainmaster.master.db.tables import Project
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.ranges import Ranges
from trainmaster.master.services.store import Store

SUBJECT = changes.SUBJECT
CHUNK = 500  # rows read at once
Thing = Project | Model | ModelVersion
Ids = Sequence[int]


@dataclass(frozen=True)
class EntityKind:
    """A kind of entity that can be followed. `workspace`: the column with its workspace."""

    table: type[Any]
    workspace: ColumnElement[int]
    permission: Permission
    joined: Callable[[Select[Any]], Select[Any]] = lambda query: query


PROJECTS = EntityKind(Project, Project.__table__.c.workspace_id, Permission.VIEW_PROJECT)
MODELS = EntityKind(Model, Model.__table__.c.workspace_id, Permission.VIEW_MODEL_REGISTRY)
VERSIONS = EntityKind(
    ModelVersion,
    Model.__table__.c.workspace_id,
    Permission.VIEW_MODEL_REGISTRY,
    lambda query: query.join(Model, Model.id == ModelVersion.model_id),
)


@dataclass(frozen=True)
class Subscription:
    """A selection of entities: those of which any of `columns` has one of the ids; none without ids."""

    columns: Mapping[ColumnElement[Any], Ids]

    def where(self) -> ColumnElement[bool]:
        return or_(False, *(column.in_(ids) for column, ids in self.columns.items() if ids))


@dataclass(frozen=True)
class Change:
    """An entity as it is, its workspace, and the number of its last change."""

    row: Thing
    workspace_id: int
    seq: int


@dataclass
class Follower:
    """The state of a follower of entities of a kind: the entities that it knows, up to which change."""

    store: Store
    kind: EntityKind
    wanted: Subscription
    known: Ranges
    since: int
    _due: Mapping[int, int] = field(default_factory=dict)

    def look(self, caller: Caller) -> Ranges:
        """Return entities that are gone for the caller; `changed` then yields new and changed ones."""
        seqs = {key: seq for key, seq in self._all(caller, self._query(self.kind.table.id, self.kind.table.seq))}
        gone = self.known.without(seqs)
        # A row without a number is being changed at this moment: the next read finds it.
        due = {key: seq for key, seq in seqs.items() if seq is not None and (seq > self.since or key not in self.known)}
        self.known = Ranges.of(key for key, seq in seqs.items() if seq is not None or key in self.known)
        self.since = max([self.since, *due.values()])
        self._due = due
        return gone

    def changed(self, caller: Caller) -> Iterator[list[Change]]:
        """Yield new and changed entities in the order of their changes, in batches. Those that vanished since `look`
        are left out."""
        due, self._due = self._due, {}
        order = sorted(due, key=lambda key: due[key])
        for start in range(0, len(order), CHUNK):
            ids = order[start : start + CHUNK]
            query = self._query(self.kind.table, self.kind.workspace).where(self.kind.table.id.in_(ids))
            changes = [Change(row, where, due[row.id]) for row, where in self._all(caller, query)]
            yield sorted(changes, key=lambda one: one.seq)

    def _query(self, *what: Any) -> Select[Any]:
        return self.kind.joined(select(*what).select_from(self.kind.table)).where(self.wanted.where())

    def _all(self, caller: Caller, query: Select[Any]) -> list[Any]:
        where = caller.where(self.kind.permission)
        if where is not None:
            query = query.where(self.kind.workspace.in_(where))
        with self.store.autocommit() as session:
            return list(session.execute(query).all())


class UpdateNumbers(BoundService):
    """Numbers of changes, for followers of streamed updates."""

    def give_numbers(self) -> None:
        """Give a number to each change without one; called before each read, since rows without one are not seen."""
        with self._store.autocommit() as session:
            waiting = changes.pending(session)
        if waiting:
            with self._store.transaction() as session:
                changes.number(session)

    def last_number(self) -> int:
        with self._store.autocommit() as session:
            return changes.highest(session)
