"""Endpoints for groups, and for the roles of users and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter

from trainmaster.master.api.schemas.entities import Pagination, User
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.access import roles
from trainmaster.master.services.access.groups import GroupView
from trainmaster.master.services.access.permissions import CLUSTER_WIDE, ROLES, Role
from trainmaster.master.services.access.roles import Assignment
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.paging import cut
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["roles"])


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
def create_group(body: CreateGroup, master: UsesMaster, caller: UserCaller) -> GroupAnswer:
    return GroupAnswer(group=GroupDetails.of(master.groups.create(caller, body.name, body.add_users)))


@router.post("/groups/search")
def search_groups(body: SearchGroups, master: UsesMaster, caller: UserCaller) -> GroupsAnswer:
    page = master.groups.search(caller, body.name, body.user_id, body.offset, body.limit)
    shown = [
        GroupFound(group=Group(group_id=group.id, name=group.name), num_members=count) for group, count in page.items
    ]
    return GroupsAnswer(groups=shown, pagination=Pagination.of(page.window))


@router.get("/groups/{group_id}")
def get_group(group_id: int, master: UsesMaster, caller: UserCaller) -> GroupAnswer:
    return GroupAnswer(group=GroupDetails.of(master.groups.get(caller, group_id)))


@router.put("/groups/{group_id}")
def update_group(group_id: int, body: UpdateGroup, master: UsesMaster, caller: UserCaller) -> GroupAnswer:
    view = master.groups.update(caller, group_id, body.name, body.add_users, body.remove_users)
    return GroupAnswer(group=GroupDetails.of(view))


@router.delete("/groups/{group_id}")
def delete_group(group_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.groups.remove(caller, group_id)
    return {}


# -- roles --------------------------------------------------------------------------------------------------------


class RoleNamed(Body):
    """A role in a request; only its number is read."""

    role_id: int
    name: str | None = None
    permissions: list[Json] | None = None
    scope_type_mask: Json | None = None


class RoleAssigned(Body):
    role: RoleNamed
    scope_workspace_id: int | None = None
    scope_cluster: bool = False

    def to(self, *, user_id: int | None = None, group_id: int | None = None) -> Assignment:
        """Where the role holds. Raises Invalid for contradictory scopes."""
        if self.scope_cluster and self.scope_workspace_id:
            raise Invalid("scopeCluster and scopeWorkspaceId contradict each other; send one of them.")
        return Assignment(self.role.role_id, user_id, group_id, self.scope_workspace_id or None)


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
        users = [assignment.role_assignment.to(user_id=assignment.user_id) for assignment in self.user_role_assignments]
        return users + [
            assignment.role_assignment.to(group_id=assignment.group_id) for assignment in self.group_role_assignments
        ]


class SearchRoles(Body):
    limit: int = 0
    offset: int = 0
    workspace_id: int | None = None


class RoleIds(Body):
    role_ids: list[int] = []  # noqa: RUF012


@router.post("/roles/add-assignments")
def assign(body: Assignments, master: UsesMaster, caller: UserCaller) -> Json:
    master.roles.assign(caller, body.wanted())
    return {}


@router.post("/roles/remove-assignments")
def unassign(body: Assignments, master: UsesMaster, caller: UserCaller) -> Json:
    master.roles.unassign(caller, body.wanted())
    return {}


@router.post("/roles/search")
def list_roles(body: SearchRoles, master: UsesMaster, caller: UserCaller) -> Json:
    return _page(list(ROLES.values()), body)


@router.post("/roles/search/by-assignability")
def assignable(body: SearchRoles, master: UsesMaster, caller: UserCaller) -> Json:
    """Roles that can be assigned in a workspace, or, without one, all."""
    return _page(roles.assignable(body.workspace_id), body)


@router.post("/roles/search/by-ids")
def by_ids(body: RoleIds, master: UsesMaster, caller: UserCaller) -> Json:
    held = roles.by_role(master.roles.of_roles(caller, body.role_ids))
    known = [ROLES[number] for number in body.role_ids if number in ROLES]
    return {"roles": [_with_assignments(role, held.get(role.id, ())) for role in known]}


@router.get("/roles/search/by-user/{user_id}")
def of_user(user_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    held = roles.by_role(master.roles.of_user(caller, user_id))
    return {"roles": [_with_assignments(ROLES[number], assignments) for number, assignments in held.items()]}


@router.get("/roles/search/by-group/{group_id}")
def of_group(group_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    return _summary(master.roles.of_group(caller, group_id))


@router.get("/roles/workspace/{workspace_id}")
def of_workspace(workspace_id: int, master: UsesMaster, caller: UserCaller, name: str = "") -> Json:
    """Return the users and groups that hold a role in a workspace."""
    assignments = master.roles.of_workspace(workspace_id, name)
    held = roles.by_role(assignments.assignments)
    return {
        "groups": [GroupDetails.of(view).model_dump(by_alias=True) for view in assignments.groups],
        "usersAssignedDirectly": [User.of(user).model_dump(by_alias=True) for user in assignments.users],
        "assignments": [_with_assignments(ROLES[number], rows) for number, rows in held.items()],
    }


@router.get("/permissions/summary")
def summary(master: UsesMaster, caller: UserCaller) -> Json:
    """Return the caller's own roles."""
    return _summary(master.roles.own(caller))


# -- inside -------------------------------------------------------------------------------------------------------


def _page(roles: Sequence[Role], body: SearchRoles) -> Json:
    window = cut(body.offset, body.limit, len(roles))
    shown = [_role(role) for role in roles[window.start : window.end]]
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


def _summary(assignments: Iterable[Assignment]) -> Json:
    """Return the roles, and in the same order the workspaces where they hold."""
    held = roles.by_role(assignments)
    where = {number: {row.workspace_id for row in rows} for number, rows in held.items()}
    return {
        "roles": [_role(ROLES[number]) for number in held],
        "assignments": [
            {
                "roleId": number,
                "scopeWorkspaceIds": sorted(place for place in places if place is not None),
                "scopeCluster": None in places,
            }
            for number, places in where.items()
        ],
    }


def _with_assignments(role: Role, assignments: Sequence[Assignment]) -> Json:
    def scope(one: Assignment) -> Json:
        return {
            "role": {"roleId": role.id, "name": role.name},
            "scopeWorkspaceId": one.workspace_id,
            "scopeCluster": one.workspace_id is None,
        }

    return {
        "role": _role(role),
        "userRoleAssignments": [
            {"userId": assignment.user_id, "roleAssignment": scope(assignment)}
            for assignment in assignments
            if assignment.user_id is not None
        ],
        "groupRoleAssignments": [
            {"groupId": one.group_id, "roleAssignment": scope(one)} for one in assignments if one.group_id is not None
        ],
    }
