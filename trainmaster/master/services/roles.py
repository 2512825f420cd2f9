"""Who holds which role where, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from trainmaster.master.db.access import Group, GroupMember, RoleAssignment
from trainmaster.master.db.tables import User, Workspace
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.permissions import CLUSTER_ADMIN, CLUSTER_WIDE, ROLES, Permission, Role
from trainmaster.master.services.store import Store

Grants = Mapping[Permission, frozenset[int] | None]
_EVERYWHERE: Grants = dict.fromkeys(Permission)


@dataclass(frozen=True)
class Assignment:
    """A role for a user or a group; without a workspace everywhere."""

    role_id: int
    user_id: int | None = None
    group_id: int | None = None
    workspace_id: int | None = None


def grants_of(store: Store, caller: Caller) -> Grants:
    """What the caller's roles allow, and where. Administrators may do everything."""
    if caller.admin:
        return _EVERYWHERE
    with store.transaction() as session:
        rows = list(session.scalars(select(RoleAssignment).where(_reaches(caller.user_id))))
    found: dict[Permission, set[int] | None] = {}
    for row in rows:
        role = ROLES.get(row.role_id)
        for permission in role.permissions if role else ():
            if row.workspace_id is None:
                found[permission] = None
            elif permission not in CLUSTER_WIDE:
                where = found.setdefault(permission, set())
                if where is not None:
                    where.add(row.workspace_id)
    return {key: None if where is None else frozenset(where) for key, where in found.items()}


def of_user(store: Store, user_id: int) -> list[RoleAssignment]:
    """Those of the user and those of the user's groups."""
    with store.transaction() as session:
        if session.get(User, user_id) is None:
            raise NotFound(f"There is no user {user_id}.")
        return list(session.scalars(select(RoleAssignment).where(_reaches(user_id)).order_by(RoleAssignment.id)))


def of_group(store: Store, group_id: int) -> list[RoleAssignment]:
    with store.transaction() as session:
        if session.get(Group, group_id) is None:
            raise NotFound(f"There is no group {group_id}.")
        query = select(RoleAssignment).where(RoleAssignment.group_id == group_id)
        return list(session.scalars(query.order_by(RoleAssignment.id)))


def of_roles(store: Store, role_ids: Sequence[int]) -> list[RoleAssignment]:
    with store.transaction() as session:
        query = select(RoleAssignment).where(RoleAssignment.role_id.in_(role_ids))
        return list(session.scalars(query.order_by(RoleAssignment.id)))


@dataclass(frozen=True)
class Members:
    """Who holds a role in a workspace."""

    assignments: Sequence[RoleAssignment]
    users: Sequence[User]
    groups: Sequence[tuple[Group, Sequence[User]]]


def of_workspace(store: Store, workspace_id: int, name: str = "") -> Members:
    """`name`: only users and groups with this in their names."""
    with store.transaction() as session:
        if session.get(Workspace, workspace_id) is None:
            raise NotFound(f"There is no workspace {workspace_id}.")
        query = select(RoleAssignment).where(RoleAssignment.workspace_id == workspace_id)
        rows = list(session.scalars(query.order_by(RoleAssignment.id)))
        users = select(User).where(User.id.in_([row.user_id for row in rows]))
        groups = select(Group).where(Group.id.in_([row.group_id for row in rows]))
        if name:
            users = users.where(User.username.icontains(name, autoescape=True))
            groups = groups.where(Group.name.icontains(name, autoescape=True))
        found = [(group, _members(session, group)) for group in session.scalars(groups.order_by(Group.name))]
        people = list(session.scalars(users.order_by(User.username)))
    known = {user.id for user in people}, {group.id for group, _ in found}
    kept = [row for row in rows if row.user_id in known[0] or row.group_id in known[1]]
    return Members(kept, people, found)


def assign(store: Store, caller: Caller, wanted: Sequence[Assignment]) -> None:
    """Raises Invalid, NotFound, Forbidden, and Conflict for what is assigned already."""
    with store.transaction() as session:
        for one in wanted:
            _check(session, caller, one)
            if session.scalar(select(RoleAssignment.id).where(*_same(one))) is not None:
                raise Conflict(f"The role {ROLES[one.role_id].name} is assigned there already.")
            session.add(
                RoleAssignment(
                    role_id=one.role_id, user_id=one.user_id, group_id=one.group_id, workspace_id=one.workspace_id
                )
            )
            session.flush()


def unassign(store: Store, caller: Caller, wanted: Sequence[Assignment]) -> None:
    """Raises NotFound for what is not assigned."""
    with store.transaction() as session:
        for one in wanted:
            _check(session, caller, one)
            row = session.scalar(select(RoleAssignment).where(*_same(one)))
            if row is None:
                raise NotFound(f"The role {ROLES[one.role_id].name} is not assigned there.")
            session.delete(row)
            session.flush()


def assignable(workspace_id: int | None) -> list[Role]:
    """Roles that can be given in a workspace, or, without one, all."""
    return [role for role in ROLES.values() if workspace_id is None or not role.anywhere_only]


# -- inside -------------------------------------------------------------------------------------------------------


def _reaches(user_id: int) -> ColumnElement[bool]:
    groups = select(GroupMember.group_id).where(GroupMember.user_id == user_id)
    return or_(RoleAssignment.user_id == user_id, RoleAssignment.group_id.in_(groups))


def _same(one: Assignment) -> list[ColumnElement[bool]]:
    r = RoleAssignment
    return [
        r.role_id == one.role_id,
        r.user_id.is_not_distinct_from(one.user_id),
        r.group_id.is_not_distinct_from(one.group_id),
        r.workspace_id.is_not_distinct_from(one.workspace_id),
    ]


def _check(session: Session, caller: Caller, one: Assignment) -> None:
    role = ROLES.get(one.role_id)
    if role is None:
        raise NotFound(f"There is no role {one.role_id}.")
    if role.anywhere_only and one.workspace_id is not None:
        raise Invalid(f"The role {role.name} holds everywhere and cannot be given for one workspace.")
    if one.workspace_id is None:
        caller.require(Permission.ASSIGN_ROLES)
    else:
        if session.get(Workspace, one.workspace_id) is None:
            raise NotFound(f"There is no workspace {one.workspace_id}.")
        caller.require(Permission.ASSIGN_ROLES, one.workspace_id)
    if one.workspace_id is None and role is CLUSTER_ADMIN:
        caller.require(Permission.ADMINISTRATE_USER)
    if one.user_id is not None and session.get(User, one.user_id) is None:
        raise NotFound(f"There is no user {one.user_id}.")
    if one.group_id is not None and session.get(Group, one.group_id) is None:
        raise NotFound(f"There is no group {one.group_id}.")


def _members(session: Session, group: Group) -> list[User]:
    query = select(User).join(GroupMember, GroupMember.user_id == User.id).where(GroupMember.group_id == group.id)
    return list(session.scalars(query.order_by(User.username)))
