"""Role assignments, and the permissions that follow from them.

Nobody assigns or revokes more than they hold themselves: assigning a role in a place requires all of its permissions
there.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from trainmaster.master.db import changes
from trainmaster.master.db.organisation import Group, RoleAssignment
from trainmaster.master.db.tables import User, Workspace
from trainmaster.master.services.access import groups
from trainmaster.master.services.access.groups import Groups, GroupView
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import CLUSTER_ADMIN, CLUSTER_WIDE, ROLES, Permission, Role
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import AlreadyExists, Forbidden, Invalid, NotFound
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

Grants = Mapping[Permission, frozenset[int] | None]
_EVERYWHERE: Grants = dict.fromkeys(Permission)


@dataclass(frozen=True)
class Assignment:
    """A role for a user or a group; without a workspace everywhere."""

    role_id: int
    user_id: int | None = None
    group_id: int | None = None
    workspace_id: int | None = None

    @classmethod
    def of(cls, row: RoleAssignment) -> Assignment:
        return cls(row.role_id, row.user_id, row.group_id, row.workspace_id)

    def __str__(self) -> str:
        whom = f"user {self.user_id}" if self.user_id is not None else f"group {self.group_id}"
        where = "everywhere" if self.workspace_id is None else f"in workspace {self.workspace_id}"
        return f"the role {ROLES[self.role_id].name} for {whom} {where}"


class Roles(BoundService):
    """Assignments of roles, and the permissions that users get from them."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._groups = Groups(master)

    def grants_of(self, user_id: int, *, admin: bool) -> Grants:
        """Return the permissions of a user's roles, and where they hold (None: everywhere). Administrators may do
        everything."""
        if admin:
            return _EVERYWHERE
        with self._store.autocommit() as session:
            rows = list(session.scalars(select(RoleAssignment).where(_reaches(user_id))))
        grants: dict[Permission, set[int] | None] = {}
        for row in rows:
            role = ROLES.get(row.role_id)
            for permission in role.permissions if role else ():
                if row.workspace_id is None:
                    grants[permission] = None
                elif permission not in CLUSTER_WIDE:
                    where = grants.setdefault(permission, set())
                    if where is not None:
                        where.add(row.workspace_id)
        return {key: None if where is None else frozenset(where) for key, where in grants.items()}

    def own(self, caller: Caller) -> list[Assignment]:
        """Return the caller's assignments, direct and by groups. Administrators are shown as cluster administrators."""
        assignments = self._listed(_reaches(caller.user_id))
        return [*assignments, Assignment(CLUSTER_ADMIN.id, user_id=caller.user_id)] if caller.admin else assignments

    def of_user(self, caller: Caller, user_id: int) -> list[Assignment]:
        """Return assignments of a user and of the user's groups, as far as the caller may see them."""
        with self._store.transaction() as session:
            if session.get(User, user_id) is None:
                raise NotFound(f"There is no user {user_id}.")
        return self._seen(caller, self._listed(_reaches(user_id)))

    def of_group(self, caller: Caller, group_id: int) -> list[Assignment]:
        self._groups.get(caller, group_id)
        return self._seen(caller, self._listed(RoleAssignment.group_id == group_id))

    def of_roles(self, caller: Caller, role_ids: Sequence[int]) -> list[Assignment]:
        return self._seen(caller, self._listed(RoleAssignment.role_id.in_(role_ids)))

    def of_workspace(self, workspace_id: int, name: str = "") -> Members:
        """`name`: only users and groups with this in their names."""
        rows = self._listed(RoleAssignment.workspace_id == workspace_id)
        with self._store.transaction() as session:
            if session.get(Workspace, workspace_id) is None:
                raise NotFound(f"There is no workspace {workspace_id}.")
            people = select(User).where(User.id.in_([row.user_id for row in rows]))
            teams = select(Group).where(Group.id.in_([row.group_id for row in rows]))
            if name:
                people = people.where(User.username.icontains(name, autoescape=True))
                teams = teams.where(Group.name.icontains(name, autoescape=True))
            users = list(session.scalars(people.order_by(User.username)))
            group_views = groups.views(session, list(session.scalars(teams.order_by(Group.name))))
        known = {user.id for user in users}, {view.row.id for view in group_views}
        return Members([row for row in rows if row.user_id in known[0] or row.group_id in known[1]], users, group_views)

    def assign(self, caller: Caller, wanted: Sequence[Assignment]) -> None:
        """Assign all or none. Raises Invalid, NotFound, Forbidden, and Conflict for what is assigned already."""
        with self._store.transaction() as session:
            for one in _in_order(wanted):
                _check(session, caller, one)
                if session.scalar(select(RoleAssignment.id).where(*_same(one))) is not None:
                    raise AlreadyExists(f"row already exists: The role {ROLES[one.role_id].name} is assigned there.")
                session.add(
                    RoleAssignment(
                        role_id=one.role_id, user_id=one.user_id, group_id=one.group_id, workspace_id=one.workspace_id
                    )
                )
                session.flush()
                log.info("%s gave %s", caller.username, one)
            wake(session, changes.SUBJECT)

    def unassign(self, caller: Caller, wanted: Sequence[Assignment]) -> None:
        """Remove all assignments or none. Raises Invalid, Forbidden, and NotFound for what is not assigned."""
        with self._store.transaction() as session:
            for one in _in_order(wanted):
                _check(session, caller, one)
                row = session.scalar(select(RoleAssignment).where(*_same(one)))
                if row is None:
                    raise NotFound(f"The role {ROLES[one.role_id].name} is not assigned there.")
                session.delete(row)
                session.flush()
                log.info("%s took %s", caller.username, one)
            wake(session, changes.SUBJECT)

    def _listed(self, which: ColumnElement[bool]) -> list[Assignment]:
        with self._store.autocommit() as session:
            rows = session.scalars(select(RoleAssignment).where(which).order_by(RoleAssignment.id))
            return [Assignment.of(row) for row in rows]

    def _seen(self, caller: Caller, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return assignments that concern the caller, and those that the caller could make."""
        with self._store.autocommit() as session:
            own_groups = set(session.scalars(groups.of_user(caller.user_id)))
        return [
            assignment
            for assignment in assignments
            if assignment.user_id == caller.user_id
            or assignment.group_id in own_groups
            or caller.holds(Permission.ASSIGN_ROLES, assignment.workspace_id)
        ]


@dataclass(frozen=True)
class Members:
    """Users and groups that hold a role in a workspace."""

    assignments: Sequence[Assignment]
    users: Sequence[User]
    groups: Sequence[GroupView]


def assignable(workspace_id: int | None) -> list[Role]:
    """Roles that can be assigned in a workspace, or, without one, all."""
    return [role for role in ROLES.values() if workspace_id is None or not role.anywhere_only]


def by_role(assignments: Iterable[Assignment]) -> Mapping[int, Sequence[Assignment]]:
    """Store assignments in the order of the roles' ids; of existing roles only."""
    gathered: dict[int, list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        if assignment.role_id in ROLES:
            gathered[assignment.role_id].append(assignment)
    return dict(sorted(gathered.items()))


# -- inside -------------------------------------------------------------------------------------------------------


def _reaches(user_id: int) -> ColumnElement[bool]:
    return or_(RoleAssignment.user_id == user_id, RoleAssignment.group_id.in_(groups.of_user(user_id)))


def _in_order(wanted: Sequence[Assignment]) -> list[Assignment]:
    """In the order of locking, so that two requests never deadlock."""
    return sorted(wanted, key=lambda one: (one.user_id or 0, one.group_id or 0))


def _same(one: Assignment) -> list[ColumnElement[bool]]:
    r = RoleAssignment
    return [
        r.role_id == one.role_id,
        r.user_id.is_not_distinct_from(one.user_id),
        r.group_id.is_not_distinct_from(one.group_id),
        r.workspace_id.is_not_distinct_from(one.workspace_id),
    ]


def _check(session: Session, caller: Caller, one: Assignment) -> None:
    """Check an assignment under the lock of its user or group, so that nobody gets a role twice."""
    role = ROLES.get(one.role_id)
    if role is None:
        raise NotFound(f"There is no role {one.role_id}.")
    if role.anywhere_only and one.workspace_id is not None:
        raise Invalid(f"The role {role.name} holds everywhere and cannot be given for one workspace.")
    caller.require(Permission.ASSIGN_ROLES, one.workspace_id, f"There is no workspace {one.workspace_id}.")
    if lacking := sorted(p for p in role.permissions if not caller.holds(p, one.workspace_id)):
        raise Forbidden(f"The role {role.name} gives {lacking[0].name}, which you do not have there yourself.")
    if one.workspace_id is not None and session.get(Workspace, one.workspace_id) is None:
        raise NotFound(f"There is no workspace {one.workspace_id}.")
    if one.user_id is not None and session.get(User, one.user_id, with_for_update=True) is None:
        raise NotFound(f"There is no user {one.user_id}.")
    if one.group_id is not None and session.get(Group, one.group_id, with_for_update=True) is None:
        raise NotFound(f"There is no group {one.group_id}.")
