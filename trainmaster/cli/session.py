"""Which master, and as whom: the rules of Determined's client."""

from __future__ import annotations

import argparse
import os
import sys

from trainmaster.client import credentials
from trainmaster.client.errors import ClientError, NotLoggedIn
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport, canonical_url

FALLBACK_USER = "determined"


class UsageError(Exception):
    """The command is written wrongly; exit status 2."""


def master_url(args: argparse.Namespace) -> str:
    """`-m`, DET_MASTER, DET_MASTER_ADDR or localhost:8080, in full. Raises ClientError."""
    told = args.master or os.environ.get("DET_MASTER") or os.environ.get("DET_MASTER_ADDR") or "localhost:8080"
    return canonical_url(told)


def transport(url: str) -> Transport:
    """A way to the master without a session."""
    return Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE") or None)


def connect(args: argparse.Namespace) -> Master:
    """A client with a session. Raises ClientError."""
    return Master(session(args))


def session(args: argparse.Namespace) -> Transport:
    """A way to the master with a session: the one that is kept, DET_USER_TOKEN's, or a new one with the password.

    Asks for a password only at a terminal. Raises ClientError.
    """
    url = master_url(args)
    user, password = identity(args, url)
    http = transport(url)
    kept = credentials.token(url, user)
    if kept:
        http.token = kept
        http.renew = lambda: _log_in(url, user, password)
        return http
    token = os.environ.get("DET_USER_TOKEN")
    if token and os.environ.get("DET_USER") == user:
        http.token = token
        return http
    http.token = _log_in(url, user, password)
    return http


def login(args: argparse.Namespace, username: str | None) -> str:
    """Log in anew and make that user the one that commands act as. Returns the name. Raises ClientError."""
    url = master_url(args)
    if username:
        args.user = username
    user, password = identity(args, url)
    token = Master(transport(url)).login(user, ask(user) if password is None else password)
    credentials.remember(url, user, token, active=True)
    return user


def identity(args: argparse.Namespace, url: str) -> tuple[str, str | None]:
    """The user, and the password if the environment gives one: DET_PASS is DET_USER's where that is set."""
    user, password = os.environ.get("DET_USER"), os.environ.get("DET_PASS")
    if args.user:
        return args.user, password if user in (None, "", args.user) else None
    return user or credentials.active_user(url) or FALLBACK_USER, password


def ask(user: str) -> str:
    """The password, typed at the terminal. Raises NotLoggedIn when nobody is there to type it."""
    if not sys.stdin.isatty():
        how = f"Run `det user login {user}` at a terminal, or set DET_USER and DET_PASS."
        raise NotLoggedIn(401, f"You are not logged in as {user}. {how}")
    import getpass

    try:
        return getpass.getpass(f"Password for user '{user}': ")
    except EOFError:
        raise ClientError("No password was given.") from None


def _log_in(url: str, user: str, password: str | None) -> str:
    token = Master(transport(url)).login(user, ask(user) if password is None else password)
    try:
        credentials.remember(url, user, token, active=False)
    except ClientError as error:  # a home that cannot be written must not stop the command
        print(f"det: warning: {error}", file=sys.stderr)
    return token
