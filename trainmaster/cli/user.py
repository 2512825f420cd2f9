"""`det user`: log in and out, and list users."""

from __future__ import annotations

import argparse

from trainmaster.cli import render, user_edit
from trainmaster.cli.session import connect, identity, login, master_url
from trainmaster.cli.verbs import Verbs, natural
from trainmaster.client import credentials
from trainmaster.client.errors import NotLoggedIn
from trainmaster.client.login import transport
from trainmaster.client.master import Master


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add(
        "login",
        _login,
        "log in; the password comes from DET_PASS or a prompt",
        "det user login determined",
    )
    p.add_argument("username", nargs="?", help="default: DET_USER, else the last one")
    p = verbs.add("logout", _logout, "log out", "det user logout")
    p.add_argument("-a", "--all", action="store_true", help="end all sessions that are stored here")
    p = verbs.add("whoami", _whoami, "print who is logged in", "det user whoami")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add(
        "link-with-agent-user",
        _link,
        "set the account of the cluster that a user's jobs run as (administrators)",
        "det user link-with-agent-user ada --agent-uid 1001 --agent-user ada --agent-gid 1001 --agent-group hpcusers",
    )
    p.add_argument("det_username", metavar="USER", help="the user")
    p.add_argument("--agent-uid", type=natural, required=True, metavar="UID", help="the account's number")
    p.add_argument("--agent-user", required=True, metavar="NAME", help="the account's name")
    p.add_argument("--agent-gid", type=natural, required=True, metavar="GID", help="the number of its group")
    p.add_argument("--agent-group", required=True, metavar="NAME", help="the name of its group")
    p = verbs.add("list", _list, "list users", "det user list", ["ls"])
    p.add_argument("-a", "--all", action="store_true", help="deactivated ones too")
    render.add_format_options(p)
    user_edit.add_to(verbs)


def _login(args: argparse.Namespace) -> None:
    print(f"Logged in as user '{login(args, args.username)}'")


def _logout(args: argparse.Namespace) -> None:
    url = master_url(args)
    leaving = credentials.users(url) if args.all else [identity(args, url)[0]]
    gone = [user for user in leaving if _end(url, user)]
    print("\n".join(f"Logged out user '{user}'" for user in gone) or "You are not logged in.")


def _end(url: str, user: str) -> bool:
    token = credentials.token(url, user)
    if token is None:
        return False
    http = transport(url)
    http.token = token
    try:
        Master(http).logout()
    except NotLoggedIn:
        pass  # the session has expired already
    finally:
        credentials.forget(url, user)
    return True


def _whoami(args: argparse.Namespace) -> None:
    user = connect(args).whoami()
    if args.json:
        render.show_json(user)
    else:
        print(f"You are logged in as user '{user['username']}'")


def _link(args: argparse.Namespace) -> None:
    connect(args).link_user(
        args.det_username, uid=args.agent_uid, user=args.agent_user, gid=args.agent_gid, group=args.agent_group
    )
    print(f"Jobs of user '{args.det_username}' run as {args.agent_user} from now on, if the cluster supports it.")
    print("They have the groups of that account: the group's name and id are stored and have no effect.")


def _list(args: argparse.Namespace) -> None:
    users = [user for user in connect(args).users() if args.all or user["active"]]
    headers = ["User Id", "Username", "Display Name", "Admin", "Active", "Remote"]
    rows = [[u["id"], u["username"], u.get("displayName"), u["admin"], u["active"], u["remote"]] for u in users]
    render.show(args, headers, rows, users)
