"""Groups, and roles of users and groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.shapes import Body, Pagination, Shape, User
from trainmaster.master.db.access import RoleAssignment
from trainmaster.master.services import groups, roles
from trainmaster.master.services.groups import GroupView
from trainmaster.master.services.paging import cut
from trainmaster.master.services.permissions import CLUSTER_WIDE, ROLES, Role
from trainmaster.master.services.roles import Assignment

router = APIRouter(prefix="/api/v1", tags=["roles"])
Json = dict[str, Any]


# -- groups -------------------------------------------------------------------------------------------------------


class Group(Shape):
    group_id: int
    name: str


class GroupDetails(Group):
    users: list[User]

    @classmethod
    def of(cls, view: GroupView) -> GroupDetails:
        return cls(group_id=view.row.id, name=view.row.name, users=[User.of(user) for user in view.members])


class GroupAnswer(Shape):
    group: GroupDetails


class GroupFound(Shape):
    group: Group
    num_members: int


class GroupsAnswer(Shape):
    groups: list[GroupFound]
    pagination: Pagination


class CreateGroup(Body):
    name: str
    add_users: list[int] = []  # noqa: RUF012


class UpdateGroup(Body):
    group_id: int | None = None
    name: str | None = None
    add_users: list[int] = []  # noqa: RUF012
    remove_users: list[int] = []  # noqa: RUF012


class SearchGroups(Body):
    limit: int = 0
    offset: int = 0
    name: str = ""
    user_id: int | None = None


@router.post("/groups")
def create_group(body: CreateGroup, services: UsesServices, caller: UserCaller) -> GroupAnswer:
    return GroupAnswer(group=GroupDetails.of(groups.create(services.store, body.name, body.add_users)))


@router.post("/groups/search")
def search_groups(body: SearchGroups, services: UsesServices, caller: UserCaller) -> GroupsAnswer:
    page = groups.search(services.store, body.name, body.user_id, body.offset, body.limit)
    shown = [
        GroupFound(group=Group(group_id=group.id, name=group.name), num_members=count) for group, count in page.items
    ]
    return GroupsAnswer(groups=shown, pagination=Pagination.of(page.window))


@router.get("/groups/{group_id}")
def get_group(group_id: int, services: UsesServices, caller: UserCaller) -> GroupAnswer:
    return GroupAnswer(group=GroupDetails.of(groups.get(services.store, group_id)))


@router.put("/groups/{group_id}")
def update_group(group_id: int, body: UpdateGroup, services: UsesServices, caller: UserCaller) -> GroupAnswer:
    view = groups.update(services.store, group_id, body.name, body.add_users, body.remove_users)
    return GroupAnswer(group=GroupDetails.of(view))


@router.delete("/groups/{group_id}")
def delete_group(group_id: int, services: UsesServices, caller: UserCaller) -> Json:
    groups.remove(services.store, group_id)
    return {}


# -- roles --------------------------------------------------------------------------------------------------------


class RoleNamed(Body):
    """A role in a request; its number counts."""

    role_id: int
    name: str | None = None
    permissions: list[Json] | None = None
    scope_type_mask: Json | None = None


class RoleAssigned(Body):
    role: RoleNamed
    scope_workspace_id: int | None = None
    scope_cluster: bool | None = None


class ToUser(Body):
    user_id: int
    role_assignment: RoleAssigned


class ToGroup(Body):
    group_id: int
    role_assignment: RoleAssigned


class Assignments(Body):
    user_role_assignments: list[ToUser] = []  # noqa: RUF012
    group_role_assignments: list[ToGroup] = []  # noqa: RUF012

    def wanted(self) -> list[Assignment]:
        found = [
            Assignment(one.role_assignment.role.role_id, user_id=one.user_id, workspace_id=_where(one.role_assignment))
            for one in self.user_role_assignments
        ]
        return found + [
            Assignment(
                one.role_assignment.role.role_id, group_id=one.group_id, workspace_id=_where(one.role_assignment)
            )
            for one in self.group_role_assignments
        ]


def _where(assigned: RoleAssigned) -> int | None:
    return assigned.scope_workspace_id or None


class SearchRoles(Body):
    limit: int = 0
    offset: int = 0
    workspace_id: int | None = None


class RoleIds(Body):
    role_ids: list[int] = []  # noqa: RUF012


@router.post("/roles/add-assignments")
def assign(body: Assignments, services: UsesServices, caller: UserCaller) -> Json:
    roles.assign(services.store, caller, body.wanted())
    return {}


@router.post("/roles/remove-assignments")
def unassign(body: Assignments, services: UsesServices, caller: UserCaller) -> Json:
    roles.unassign(services.store, caller, body.wanted())
    return {}


@router.post("/roles/search")
def list_roles(body: SearchRoles, services: UsesServices, caller: UserCaller) -> Json:
    return _page(list(ROLES.values()), body)


@router.post("/roles/search/by-assignability")
def assignable(body: SearchRoles, services: UsesServices, caller: UserCaller) -> Json:
    """Those that can be given in a workspace, or, without one, all."""
    return _page(roles.assignable(body.workspace_id), body)


@router.post("/roles/search/by-ids")
def by_ids(body: RoleIds, services: UsesServices, caller: UserCaller) -> Json:
    found = roles.of_roles(services.store, body.role_ids)
    return {"roles": [_with_assignments(ROLES[number], found) for number in body.role_ids if number in ROLES]}


@router.get("/roles/search/by-user/{user_id}")
def of_user(user_id: int, services: UsesServices, caller: UserCaller) -> Json:
    found = roles.of_user(services.store, user_id)
    return {"roles": [_with_assignments(role, found) for role in _held(found)]}


@router.get("/roles/search/by-group/{group_id}")
def of_group(group_id: int, services: UsesServices, caller: UserCaller) -> Json:
    found = roles.of_group(services.store, group_id)
    return {"roles": [_role(role) for role in _held(found)], "assignments": _summaries(found)}


@router.get("/roles/workspace/{workspace_id}")
def of_workspace(workspace_id: int, services: UsesServices, caller: UserCaller, name: str = "") -> Json:
    """Who holds a role in it."""
    found = roles.of_workspace(services.store, workspace_id, name)
    return {
        "groups": [
            GroupDetails.of(GroupView(group, members)).model_dump(by_alias=True) for group, members in found.groups
        ],
        "usersAssignedDirectly": [User.of(user).model_dump(by_alias=True) for user in found.users],
        "assignments": [_with_assignments(role, found.assignments) for role in _held(found.assignments)],
    }


@router.get("/permissions/summary")
def summary(services: UsesServices, caller: UserCaller) -> Json:
    """The caller's own roles."""
    found = roles.of_user(services.store, caller.user_id)
    if caller.admin:
        found = [*found, RoleAssignment(role_id=1, user_id=caller.user_id, workspace_id=None)]
    return {"roles": [_role(role) for role in _held(found)], "assignments": _summaries(found)}


# -- inside -------------------------------------------------------------------------------------------------------


def _page(found: Sequence[Role], body: SearchRoles) -> Json:
    window = cut(body.offset, body.limit, len(found))
    shown = [_role(role) for role in found[window.start : window.end]]
    return {"roles": shown, "pagination": Pagination.of(window).model_dump(by_alias=True)}


def _role(role: Role) -> Json:
    return {
        "roleId": role.id,
        "name": role.name,
        "permissions": [
            {
                "id": f"PERMISSION_TYPE_{permission.name}",
                "name": permission.name.replace("_", " ").lower(),
                "scopeTypeMask": {"cluster": True, "workspace": permission not in CLUSTER_WIDE},
            }
            for permission in sorted(role.permissions)
        ],
        "scopeTypeMask": {"cluster": True, "workspace": not role.anywhere_only},
    }


def _held(rows: Iterable[RoleAssignment]) -> list[Role]:
    return [ROLES[number] for number in sorted({row.role_id for row in rows}) if number in ROLES]


def _summaries(rows: Iterable[RoleAssignment]) -> list[Json]:
    """In the order of `_held`."""
    where: dict[int, list[int]] = defaultdict(list)
    everywhere = set()
    for row in rows:
        where[row.role_id] += [row.workspace_id] if row.workspace_id is not None else []
        if row.workspace_id is None:
            everywhere.add(row.role_id)
    return [
        {"roleId": number, "scopeWorkspaceIds": sorted(set(where[number])), "scopeCluster": number in everywhere}
        for number in sorted(where)
    ]


def _with_assignments(role: Role, rows: Iterable[RoleAssignment]) -> Json:
    mine = [row for row in rows if row.role_id == role.id]

    def scope(row: RoleAssignment) -> Json:
        return {
            "role": {"roleId": role.id, "name": role.name},
            "scopeWorkspaceId": row.workspace_id,
            "scopeCluster": row.workspace_id is None,
        }

    return {
        "role": _role(role),
        "userRoleAssignments": [
            {"userId": row.user_id, "roleAssignment": scope(row)} for row in mine if row.user_id is not None
        ],
        "groupRoleAssignments": [
            {"groupId": row.group_id, "roleAssignment": scope(row)} for row in mine if row.group_id is not None
        ],
    }
