"""`det workspace`: workspaces, which contain projects."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.cli import project, render
from trainmaster.cli.session import UsageError, session
from trainmaster.cli.verbs import Verbs, add_order, add_paging, confirmed, natural, order, read_mapping
from trainmaster.client.organisation import Organisation
from trainmaster.client.users import Users

# verb -> (its call, the message when it is done, help)
FLAG_VERBS = {
    "archive": (
        Organisation.archive_workspace,
        "Archived",
        "make a workspace read-only and hide it from lists, with its projects",
    ),
    "unarchive": (Organisation.unarchive_workspace, "Unarchived", "undo `archive`"),
    "pin": (Organisation.pin_workspace, "Pinned", "show a workspace at the top of your web page"),
    "unpin": (Organisation.unpin_workspace, "Unpinned", "undo `pin`"),
}

if TYPE_CHECKING:
    from trainmaster.client import wire


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list workspaces", "det workspace list", ["ls"])
    add_order(p, ("id", "name"), "id")
    add_paging(p, 200)
    render.add_format_options(p)
    p = verbs.add("list-projects", project.list_of_workspace, "list its projects", "det workspace list-projects vision")
    project.add_list_options(p)
    p = verbs.add(
        "list-pools", _list_pools, "list the resource pools that it may use", "det workspace list-pools vision"
    )
    _add_name(p)
    render.add_format_options(p)
    p = verbs.add("list-members", _list_members, "list who holds a role in it", "det workspace list-members vision")
    _add_name(p)
    render.add_format_options(p)
    p = verbs.add("create", _create, "create a workspace", "det workspace create vision --default-compute-pool gpu")
    p.add_argument("name", help="its name")
    _add_settings(p)
    p = verbs.add("describe", _describe, "show a workspace", "det workspace describe vision")
    _add_name(p)
    render.add_format_options(p)
    p = verbs.add("edit", _edit, "change a workspace", "det workspace edit vision --name sight")
    _add_name(p)
    p.add_argument("--name", metavar="NAME", help="its new name")
    _add_settings(p)
    for verb, (_, _, text) in FLAG_VERBS.items():
        _add_name(verbs.add(verb, _flag(verb), text, f"det workspace {verb} vision"))
    p = verbs.add("delete", _delete, "delete a workspace with all that it contains", "det workspace delete vision")
    _add_name(p)
    p.add_argument("--yes", action="store_true", help="do not ask")


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workspace_name", help="the workspace's name")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent-uid", type=natural, metavar="UID", help="number of the account that its jobs run as")
    parser.add_argument("--agent-user", metavar="NAME", help="name of the account that its jobs run as")
    parser.add_argument("--agent-gid", type=natural, metavar="GID", help="number of that account's group")
    parser.add_argument("--agent-group", metavar="NAME", help="name of that account's group")
    storage = parser.add_mutually_exclusive_group()
    storage.add_argument("--checkpoint-storage-config", metavar="JSON", help="its checkpoint storage; {} for none")
    storage.add_argument("--checkpoint-storage-config-file", type=Path, metavar="FILE", help="the same, YAML or JSON")
    parser.add_argument("--default-compute-pool", metavar="POOL", help="default pool for tasks that use slots")
    parser.add_argument("--default-aux-pool", metavar="POOL", help="default pool for tasks that use none")
    render.add_format_options(parser)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    account = {
        "agentUid": args.agent_uid,
        "agentUser": args.agent_user,
        "agentGid": args.agent_gid,
        "agentGroup": args.agent_group,
    }
    named = [value is not None for value in account.values()]
    if any(named) and not all(named):
        raise UsageError("give --agent-uid, --agent-user, --agent-gid and --agent-group together")
    return {
        "agentUserGroup": account if all(named) else None,
        "checkpointStorageConfig": _storage(args),
        "defaultComputePool": args.default_compute_pool,
        "defaultAuxPool": args.default_aux_pool,
    }


def _storage(args: argparse.Namespace) -> dict[str, Any] | None:
    if args.checkpoint_storage_config_file is not None:
        return read_mapping(args.checkpoint_storage_config_file)
    if args.checkpoint_storage_config is None:
        return None
    try:
        data = json.loads(args.checkpoint_storage_config)
    except ValueError as error:
        raise UsageError(f"--checkpoint-storage-config is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError("--checkpoint-storage-config must be a JSON object")
    return data


def _show(args: argparse.Namespace, workspaces: list[wire.Workspace], raw: Any) -> None:
    headers = ["ID", "Name", "# Projects", "Owner", "Archived", "Agent User", "Agent Group"]
    headers += ["Default Compute Pool", "Default Aux Pool"]
    rows = []
    for w in workspaces:
        account = w.get("agentUserGroup") or {}
        row = [w["id"], w["name"], w["numProjects"], w["username"], w["archived"]]
        row += [account.get("agentUser"), account.get("agentGroup"), w["defaultComputePool"], w["defaultAuxPool"]]
        rows.append(row)
    render.show(args, headers, rows, raw)


def _list(args: argparse.Namespace) -> None:
    workspaces = Organisation(session(args)).workspaces(
        limit=args.limit, offset=args.offset, everything=args.pages == "all", **order(args)
    )
    _show(args, workspaces, workspaces)


def _list_pools(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    pools = master.pools_of(master.workspace(args.workspace_name)["id"])
    render.show(args, ["Workspace", "Available Resource Pools"], [[args.workspace_name, pools]], pools)


def _list_members(args: argparse.Namespace) -> None:
    http = session(args)
    members = Users(http).members(Organisation(http).workspace(args.workspace_name)["id"])
    users = {user["id"]: user["username"] for user in members["usersAssignedDirectly"]}
    groups = {group["groupId"]: group["name"] for group in members["groups"]}
    rows = []
    for entry in members["assignments"]:
        role = entry["role"]["name"]
        rows += [[groups[one["groupId"]], "G", role] for one in entry["groupRoleAssignments"]]
        rows += [[users[one["userId"]], "U", role] for one in entry["userRoleAssignments"]]
    render.show(args, ["User/Group Name", "User/Group", "Role Name"], rows, members)


def _create(args: argparse.Namespace) -> None:
    made = Organisation(session(args)).create_workspace(args.name, **_settings(args))
    _show(args, [made], made)


def _describe(args: argparse.Namespace) -> None:
    workspace = Organisation(session(args)).workspace(args.workspace_name)
    _show(args, [workspace], workspace)


def _edit(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    workspace = master.workspace(args.workspace_name)
    changed = master.edit_workspace(workspace["id"], name=args.name, **_settings(args))
    _show(args, [changed], changed)


def _flag(verb: str) -> Callable[[argparse.Namespace], None]:
    call, done, _ = FLAG_VERBS[verb]

    def run(args: argparse.Namespace) -> None:
        master = Organisation(session(args))
        call(master, master.workspace(args.workspace_name)["id"])
        print(f"{done} workspace {args.workspace_name}")

    return run


def _delete(args: argparse.Namespace) -> int:
    master = Organisation(session(args))
    workspace = master.workspace(args.workspace_name)
    question = f"Delete the workspace {args.workspace_name} with all its projects and experiments?"
    if not confirmed(args, question):
        print("Nothing was deleted.")
        return 1
    gone = master.delete_workspace(workspace["id"])
    print(f"Deleted workspace {args.workspace_name}" if gone else f"Deletion of {args.workspace_name} is in progress")
    return 0
