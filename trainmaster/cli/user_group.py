"""`det user-group`: groups of users."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs, confirmed
from trainmaster.client.users import Users


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list groups", "det user-group list", ["ls"])
    p.add_argument("--groups-user-belongs-to", metavar="USER", help="only those of this user")
    render.add_format_options(p)
    p = verbs.add("create", _create, "create a group", "det user-group create vision --add-user ada")
    p.add_argument("group_name")
    p.add_argument("--add-user", action="append", default=[], metavar="USER", help="a member; can be repeated")
    p = verbs.add("describe", _describe, "show a group's members", "det user-group describe vision")
    p.add_argument("group_name")
    render.add_format_options(p)
    p = verbs.add("add-user", _add, "add members", "det user-group add-user vision ada,grace")
    p.add_argument("group_name")
    p.add_argument("usernames", metavar="USER,USER")
    p = verbs.add("remove-user", _remove, "remove members", "det user-group remove-user vision ada")
    p.add_argument("group_name")
    p.add_argument("usernames", metavar="USER,USER")
    p = verbs.add("change-name", _rename, "give a group another name", "det user-group change-name vision sight")
    p.add_argument("old_group_name", metavar="GROUP")
    p.add_argument("new_group_name", metavar="NAME")
    p = verbs.add("delete", _delete, "delete a group with the roles it has", "det user-group delete vision --yes")
    p.add_argument("group_name")
    p.add_argument("--yes", action="store_true", help="do not ask")


def _ids(master: Users, names: list[str]) -> list[int]:
    return [int(master.user(name)["id"]) for name in names]


def _list(args: argparse.Namespace) -> None:
    master = Users(session(args))
    wanted = args.groups_user_belongs_to
    groups = master.groups(user_id=master.user(wanted)["id"] if wanted else None)
    rows = [[entry["group"]["groupId"], entry["group"]["name"], entry["numMembers"]] for entry in groups]
    render.show(args, ["Group ID", "Group Name", "# Users"], rows, groups)


def _create(args: argparse.Namespace) -> None:
    master = Users(session(args))
    made = master.create_group(args.group_name, _ids(master, args.add_user))
    print(f"Created group {made['name']} with ID {made['groupId']}")


def _describe(args: argparse.Namespace) -> None:
    group = Users(session(args)).group(args.group_name)
    rows = [[user["id"], user["username"], user["displayName"], user["active"]] for user in group["users"]]
    render.show(args, ["User ID", "Username", "Display Name", "Active"], rows, group)


def _add(args: argparse.Namespace) -> None:
    master = Users(session(args))
    names = args.usernames.split(",")
    master.update_group(master.group(args.group_name)["groupId"], addUsers=_ids(master, names))
    print(f"Added {', '.join(names)} to group {args.group_name}")


def _remove(args: argparse.Namespace) -> None:
    master = Users(session(args))
    names = args.usernames.split(",")
    master.update_group(master.group(args.group_name)["groupId"], removeUsers=_ids(master, names))
    print(f"Removed {', '.join(names)} from group {args.group_name}")


def _rename(args: argparse.Namespace) -> None:
    master = Users(session(args))
    master.update_group(master.group(args.old_group_name)["groupId"], name=args.new_group_name)
    print(f"Group {args.old_group_name} is {args.new_group_name} from now on")


def _delete(args: argparse.Namespace) -> int:
    master = Users(session(args))
    group = master.group(args.group_name)
    if not confirmed(args, f"Delete group {args.group_name} with the roles it has?"):
        print("Nothing was deleted.")
        return 1
    master.delete_group(group["groupId"])
    print(f"Deleted group {args.group_name}")
    return 0
