"""Verbs of `det user` that create and change users."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import UsageError, connect, session, warn_of_argument
from trainmaster.cli.verbs import Verbs, positive
from trainmaster.client.errors import ClientError
from trainmaster.client.users import Users

_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def add_to(verbs: Verbs) -> None:
    p = verbs.add("list-sessions", _list_sessions, "list where you are logged in", "det user list-sessions")
    render.add_format_options(p)
    p = verbs.add("end-session", _end_session, "log out another browser or terminal", "det user end-session 12")
    p.add_argument("session_id", type=positive, help="its number in the list")
    p = verbs.add("create", _create, "create a user (administrators)", "det user create ada --admin")
    p.add_argument("username", help="the name; lower case")
    p.add_argument("--admin", action="store_true", help="is an administrator")
    p.add_argument("--password", help="better left out: typed at a prompt, or read from a pipe")
    p.add_argument("--remote", action="store_true", help="logs in elsewhere (single sign-on), without a password here")
    p = verbs.add("activate", _activate, "let a user log in again (administrators)", "det user activate ada")
    p.add_argument("username")
    p = verbs.add(
        "deactivate", _deactivate, "do not let a user log in any more (administrators)", "det user deactivate ada"
    )
    p.add_argument("username")
    p = verbs.add("rename", _rename, "give a user another name (administrators)", "det user rename ada lovelace")
    p.add_argument("target_user", metavar="USER")
    p.add_argument("new_username", metavar="NAME")
    p = verbs.add("change-password", _change_password, "set a password", "det user change-password")
    p.add_argument("target_user", nargs="?", metavar="USER", help="default: yourself")
    p.add_argument("--end-tokens", action="store_true", help="also revoke all of the user's access tokens")
    p = verbs.add("edit", _edit, "change a user", 'det user edit ada --display-name "Ada L."')
    p.add_argument("target_user", metavar="USER")
    p.add_argument("--display-name", metavar="TEXT", help="the name that lists show")
    p.add_argument("--username", metavar="NAME", help="another name")
    for name, text in (("remote", "logs in elsewhere"), ("active", "may log in"), ("admin", "is an administrator")):
        p.add_argument(f"--{name}", type=_flag, metavar="true|false", help=text)


def _list_sessions(args: argparse.Namespace) -> None:
    sessions = connect(args).sessions()
    headers = ["ID", "Created At", "Expires At", "Where", "This One"]
    rows = [
        [
            one["id"],
            render.Moment(one["createdAt"]),
            render.Moment(one["expiresAt"]),
            " ".join(filter(None, (one["origin"] or "a program", one["description"]))),
            one["current"],
        ]
        for one in sessions
    ]
    render.show(args, headers, rows, sessions)


def _end_session(args: argparse.Namespace) -> None:
    connect(args).end_session(args.session_id)
    print(f"Ended session {args.session_id}")


def _flag(text: str) -> bool:
    try:
        return _YES[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def _strong(password: str) -> str:
    """Return the password. Raises ClientError for one that is too simple; the master cannot check that, as it gets a
    hash."""
    kinds = (str.isupper, str.islower, str.isdigit)
    if len(password) < 8 or not all(any(map(kind, password)) for kind in kinds):
        raise ClientError("A password needs 8 characters, with an upper and a lower case letter and a digit.")
    return password


def _asked(name: str) -> str:
    """Read a new password: typed twice at the terminal, or the first line of standard input."""
    if not sys.stdin.isatty():
        piped = sys.stdin.readline().rstrip("\n")
        if not piped:
            raise UsageError("type the new password at a terminal, or pipe it in")
        return _strong(piped)
    import getpass

    first = getpass.getpass(f"New password for user '{name}': ")
    if getpass.getpass("Confirm password: ") != first:
        raise ClientError("The two passwords differ; nothing was changed.")
    return _strong(first)


def _create(args: argparse.Namespace) -> None:
    master = Users(session(args))
    if args.password is not None:
        warn_of_argument("The password")
    password = None if args.password is None else _strong(args.password)
    if not args.remote and password is None:
        password = _asked(args.username)
    made = master.create(args.username, password, admin=args.admin, remote=args.remote)
    print(f"Created user '{made['username']}'")


def _activate(args: argparse.Namespace) -> None:
    _change(args, args.username, active=True)
    print(f"Activated user '{args.username}'")


def _deactivate(args: argparse.Namespace) -> None:
    _change(args, args.username, active=False)
    print(f"Deactivated user '{args.username}'")


def _rename(args: argparse.Namespace) -> None:
    _change(args, args.target_user, username=args.new_username)
    print(f"User '{args.target_user}' is '{args.new_username}' from now on")


def _change_password(args: argparse.Namespace) -> None:
    """Change a password. At a terminal, users are asked for their own old password; in a pipe it is not needed."""
    master = Users(session(args))
    me = master.me()
    user = master.user(args.target_user) if args.target_user else me
    old = None
    if sys.stdin.isatty() and user["id"] == me["id"]:
        import getpass

        old = getpass.getpass(f"Old password for user '{user['username']}': ")
    master.set_password(user["id"], _asked(user["username"]), old=old, end_tokens=args.end_tokens)
    tokens = " and their access tokens" if args.end_tokens else ""
    print(f"Changed the password of user '{user['username']}'; their other sessions{tokens} have ended")


def _edit(args: argparse.Namespace) -> None:
    changes = {
        "displayName": args.display_name,
        "username": args.username,
        "remote": args.remote,
        "active": args.active,
        "admin": args.admin,
    }
    if all(value is None for value in changes.values()):
        raise UsageError("give a change: --display-name, --username, --remote, --active or --admin")
    _change(args, args.target_user, **changes)
    print(f"Changed user '{args.target_user}'")


def _change(args: argparse.Namespace, name: str, **fields: Any) -> None:
    master = Users(session(args))
    master.edit(master.user(name)["id"], **fields)
