"""`det rbac`."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs
from trainmaster.client.organisation import Organisation
from trainmaster.client.users import Users


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("my-permissions", _mine, "what one may do, and where", "det rbac my-permissions")
    render.add_format_options(p)
    p = verbs.add("list-roles", _list, "list roles", "det rbac list-roles --exclude-global-roles")
    p.add_argument("--exclude-global-roles", action="store_true", help="only those for a workspace")
    render.add_format_options(p)
    p = verbs.add("describe-role", _describe, "show a role and who has it", "det rbac describe-role Editor")
    p.add_argument("role_name")
    render.add_format_options(p)
    p = verbs.add("list-users-roles", _of_user, "a user's roles", "det rbac list-users-roles ada")
    p.add_argument("username")
    render.add_format_options(p)
    p = verbs.add("list-groups-roles", _of_group, "a group's roles", "det rbac list-groups-roles vision")
    p.add_argument("group_name")
    render.add_format_options(p)
    p = verbs.add("assign-role", _assign, "give a role", "det rbac assign-role Editor -u ada -w vision")
    _add_whom(p)
    p = verbs.add("unassign-role", _unassign, "take a role away", "det rbac unassign-role Editor -u ada -w vision")
    _add_whom(p)


def _add_whom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role_name")
    parser.add_argument("-w", "--workspace-name", help="where (default: everywhere)")
    whom = parser.add_mutually_exclusive_group(required=True)
    whom.add_argument("-u", "--username-to-assign", metavar="USER")
    whom.add_argument("-g", "--group-name-to-assign", metavar="GROUP")


def _mine(args: argparse.Namespace) -> None:
    found = Users(session(args)).permissions()
    roles = {role["roleId"]: role for role in found["roles"]}
    rows = []
    for one in found["assignments"]:
        role = roles[one["roleId"]]
        where = "everywhere" if one["scopeCluster"] else [f"workspace {key}" for key in one["scopeWorkspaceIds"]]
        rows += [[role["name"], where, permission["name"]] for permission in role["permissions"]]
    render.show(args, ["Role", "Where", "Permission"], rows, found)


def _list(args: argparse.Namespace) -> None:
    found = Users(session(args)).roles(in_workspaces=args.exclude_global_roles)
    rows = [[r["roleId"], r["name"], [p["name"] for p in r["permissions"]]] for r in found]
    render.show(args, ["ID", "Role", "Permissions"], rows, found)


def _describe(args: argparse.Namespace) -> None:
    found = Users(session(args)).role(args.role_name)
    if args.json or args.yaml:
        render.show(args, (), (), found)
        return
    rows: list[list[Any]] = []
    for one in found["userRoleAssignments"]:
        rows.append(["user", one["userId"], one["roleAssignment"]["scopeWorkspaceId"]])
    for one in found["groupRoleAssignments"]:
        rows.append(["group", one["groupId"], one["roleAssignment"]["scopeWorkspaceId"]])
    if not args.csv:
        print(f"{args.role_name}: {', '.join(p['name'] for p in found['role']['permissions'])}\n")
    render.show(args, ["Kind", "ID", "Workspace ID"], rows, None)


def _of_user(args: argparse.Namespace) -> None:
    master = Users(session(args))
    found = master.roles_of_user(master.user(args.username)["id"])
    rows = []
    for entry in found:
        name = entry["role"]["name"]
        for one in entry["userRoleAssignments"]:
            rows.append([name, "directly", one["roleAssignment"]["scopeWorkspaceId"]])
        for one in entry["groupRoleAssignments"]:
            rows.append([name, f"group {one['groupId']}", one["roleAssignment"]["scopeWorkspaceId"]])
    render.show(args, ["Role", "How", "Workspace ID"], rows, found)


def _of_group(args: argparse.Namespace) -> None:
    master = Users(session(args))
    found = master.roles_of_group(master.group(args.group_name)["groupId"])
    rows = [
        [role["name"], one["scopeCluster"], one["scopeWorkspaceIds"]]
        for role, one in zip(found["roles"], found["assignments"], strict=True)
    ]
    render.show(args, ["Role", "Everywhere", "Workspace IDs"], rows, found)


def _assign(args: argparse.Namespace) -> None:
    _change(args, undo=False)
    print(f"Gave the role {args.role_name} to {args.username_to_assign or args.group_name_to_assign}")


def _unassign(args: argparse.Namespace) -> None:
    _change(args, undo=True)
    print(f"Took the role {args.role_name} from {args.username_to_assign or args.group_name_to_assign}")


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
