"""`det user`."""

from __future__ import annotations

import argparse

from trainmaster.cli.session import connect, login, master_url
from trainmaster.cli.verbs import Verbs
from trainmaster.client import credentials
from trainmaster.client.errors import NotLoggedIn


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add(
        "login",
        _login,
        "log in; the password comes from DET_PASS or is asked for",
        "det user login determined",
    )
    p.add_argument("username", nargs="?", help="default: DET_USER, else the last one")
    verbs.add("logout", _logout, "log out", "det user logout")
    verbs.add("whoami", _whoami, "print who is logged in", "det user whoami")


def _login(args: argparse.Namespace) -> None:
    print(f"Logged in as user '{login(args, args.username)}'")


def _logout(args: argparse.Namespace) -> None:
    url = master_url(args)
    user = args.user or credentials.active_user(url)
    if user is None or credentials.token(url, user) is None:
        print("You are not logged in.")
        return
    try:
        connect(args).logout()
    except NotLoggedIn:
        pass  # the session had expired: that is logged out too
    finally:
        credentials.forget(url, user)
    print(f"Logged out user '{user}'")


def _whoami(args: argparse.Namespace) -> None:
    print(f"You are logged in as user '{connect(args).whoami()['username']}'")
