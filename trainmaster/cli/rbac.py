"""`det rbac`: roles, and the users and groups that hold them."""

from __future__ import annotations

import argparse
import sys
from functools import cached_property
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import connect, session
from trainmaster.cli.verbs import Verbs
from trainmaster.client.master import Master
from trainmaster.client.organisation import Organisation
from trainmaster.client.transport import Transport
from trainmaster.client.users import Users


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("my-permissions", _mine, "list your permissions", "det rbac my-permissions")
    render.add_format_options(p)
    p = verbs.add("list-roles", _list, "list roles", "det rbac list-roles --exclude-global-roles")
    p.add_argument("--exclude-global-roles", action="store_true", help="only those for a workspace")
    render.add_format_options(p)
    p = verbs.add("describe-role", _describe, "show a role and who has it", "det rbac describe-role Editor")
    p.add_argument("role_name")
    render.add_format_options(p)
    p = verbs.add("list-users-roles", _of_user, "list a user's roles", "det rbac list-users-roles ada")
    p.add_argument("username")
    render.add_format_options(p)
    p = verbs.add("list-groups-roles", _of_group, "list a group's roles", "det rbac list-groups-roles vision")
    p.add_argument("group_name")
    render.add_format_options(p)
    p = verbs.add("assign-role", _assign, "assign a role", "det rbac assign-role Editor -u ada -w vision")
    _add_whom(p)
    p = verbs.add("unassign-role", _unassign, "take a role away", "det rbac unassign-role Editor -u ada -w vision")
    _add_whom(p)


def _add_whom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role_name")
    parser.add_argument("-w", "--workspace-name", help="where (default: everywhere)")
    whom = parser.add_mutually_exclusive_group(required=True)
    whom.add_argument("-u", "--username-to-assign", metavar="USER")
    whom.add_argument("-g", "--group-name-to-assign", metavar="GROUP")


class _Names:
    """Names of workspaces, users and groups by id, each list read once and only if a table needs it."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    @cached_property
    def _workspaces(self) -> dict[int, str]:
        return {workspace["id"]: workspace["name"] for workspace in Organisation(self._http).workspaces()}

    @cached_property
    def _users(self) -> dict[int, str]:
        return {user["id"]: user["username"] for user in Master(self._http).users()}

    @cached_property
    def _groups(self) -> dict[int, str]:
        return {entry["group"]["groupId"]: entry["group"]["name"] for entry in Users(self._http).groups()}

    def where(self, workspace_id: int | None) -> str:
        return "everywhere" if workspace_id is None else self._workspaces.get(workspace_id, str(workspace_id))

    def user(self, user_id: int) -> str:
        return self._users.get(user_id, str(user_id))

    def group(self, group_id: int) -> str:
        return self._groups.get(group_id, str(group_id))


def _places(names: _Names, summary: dict[str, Any]) -> list[str]:
    """Names of the workspaces where an assignment holds."""
    everywhere = [names.where(None)] if summary["scopeCluster"] else []
    return everywhere + [names.where(number) for number in summary["scopeWorkspaceIds"]]


def _mine(args: argparse.Namespace) -> None:
    http = session(args)
    permissions, names = Users(http).permissions(), _Names(http)
    if args.json or args.yaml:
        render.show(args, (), (), permissions)
        return
    roles = {role["roleId"]: role for role in permissions["roles"]}
    rows = [
        [place, permission["name"], roles[one["roleId"]]["name"]]
        for one in permissions["assignments"]
        for place in _places(names, one)
        for permission in roles[one["roleId"]]["permissions"]
    ]
    render.show(args, ["Where", "Permission", "By Role"], rows, permissions)


def _list(args: argparse.Namespace) -> None:
    roles = Users(session(args)).roles(in_workspaces=args.exclude_global_roles)
    rows = [
        [r["roleId"], r["name"], r["scopeTypeMask"]["workspace"], [p["name"] for p in r["permissions"]]] for r in roles
    ]
    render.show(args, ["ID", "Role", "For Workspaces", "Permissions"], rows, roles)


def _describe(args: argparse.Namespace) -> None:
    http = session(args)
    role, names = Users(http).role(args.role_name), _Names(http)
    if args.json or args.yaml:
        render.show(args, (), (), role)
        return
    if not args.csv:
        print(f"{args.role_name}: {', '.join(p['name'] for p in role['role']['permissions'])}\n")
    rows = [
        *(["user", names.user(one["userId"]), _scope(names, one)] for one in role["userRoleAssignments"]),
        *(["group", names.group(one["groupId"]), _scope(names, one)] for one in role["groupRoleAssignments"]),
    ]
    render.show(args, ["Kind", "Name", "Where"], rows, None)


def _scope(names: _Names, assignment: dict[str, Any]) -> str:
    return names.where(assignment["roleAssignment"]["scopeWorkspaceId"])


def _of_user(args: argparse.Namespace) -> None:
    http = session(args)
    master, names = Users(http), _Names(http)
    roles = master.roles_of_user(master.user(args.username)["id"])
    if args.json or args.yaml:
        render.show(args, (), (), roles)
        return
    rows = []
    for entry in roles:
        name = entry["role"]["name"]
        rows += [[name, _scope(names, one), "directly"] for one in entry["userRoleAssignments"]]
        for one in entry["groupRoleAssignments"]:
            rows.append([name, _scope(names, one), f"by group {names.group(one['groupId'])}"])
    render.show(args, ["Role", "Where", "How"], rows, roles)


def _of_group(args: argparse.Namespace) -> None:
    http = session(args)
    master, names = Users(http), _Names(http)
    roles = master.roles_of_group(master.group(args.group_name)["groupId"])
    if args.json or args.yaml:
        render.show(args, (), (), roles)
        return
    pairs = zip(roles["roles"], roles["assignments"], strict=True)
    rows = [[role["name"], place] for role, one in pairs for place in _places(names, one)]
    render.show(args, ["Role", "Where"], rows, roles)


def _assign(args: argparse.Namespace) -> None:
    _change(args, undo=False)
    print(f"Assigned role {args.role_name} to {args.username_to_assign or args.group_name_to_assign}")
    if not connect(args).info()["rbacEnabled"]:
        print("det: warning: roles have no effect now: security.authz.type is basic.", file=sys.stderr)


def _unassign(args: argparse.Namespace) -> None:
    _change(args, undo=True)
    print(f"Removed role {args.role_name} from {args.username_to_assign or args.group_name_to_assign}")


def _change(args: argparse.Namespace, *, undo: bool) -> None:
    http = session(args)
    master = Users(http)
    user, group, workspace = args.username_to_assign, args.group_name_to_assign, args.workspace_name
    master.assign(
        master.role(args.role_name)["role"]["roleId"],
        user_id=master.user(user)["id"] if user else None,
        group_id=master.group(group)["groupId"] if group else None,
        workspace_id=Organisation(http).workspace(workspace)["id"] if workspace else None,
        undo=undo,
    )
