"""Which master, and as whom: the rules of Determined's client."""

from __future__ import annotations

import argparse
import getpass
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
    told = args.master or os.environ.get("DET_MASTER") or os.environ.get("DET_MASTER_ADDR") or "localhost:8080"
    return canonical_url(told)


def connect(args: argparse.Namespace) -> Master:
    """A client that is logged in. Asks for a password only at a terminal. Raises ClientError."""
    url = master_url(args)
    transport = Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE"))
    master = Master(transport)
    user, password = _user(args, url)
    cached = credentials.token(url, user)
    if cached:
        transport.token = cached
        return _Relogin(transport, url, user, password)
    token = os.environ.get("DET_USER_TOKEN")
    if token and os.environ.get("DET_USER") in (user, None) and not args.user:
        transport.token = token
        return master
    if password is None:
        password = "" if user == FALLBACK_USER and not sys.stdin.isatty() else _ask(user)
    credentials.remember(url, user, master.login(user, password), active=False)
    return master


def login(args: argparse.Namespace, username: str | None) -> str:
    """Log in anew and make that user the active one. Returns the name."""
    url = master_url(args)
    user = username or args.user or os.environ.get("DET_USER") or credentials.active_user(url) or FALLBACK_USER
    password = os.environ.get("DET_PASS")
    master = Master(Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE")))
    token = master.login(user, _ask(user) if password is None else password)
    credentials.remember(url, user, token, active=True)
    return user


class _Relogin(Master):
    """A client with a cached token: when that has expired, the next step is said in the error."""

    def __init__(self, transport: Transport, url: str, user: str, password: str | None) -> None:
        super().__init__(transport)
        request = transport.request

        def again(method: str, path: str, **options: object) -> object:
            try:
                return request(method, path, **options)  # type: ignore[arg-type]
            except NotLoggedIn:
                credentials.forget(url, user)
                if password is None:
                    raise
                transport.token = None
                body = {"username": user, "password": password}
                transport.token = str(request("POST", "/api/v1/auth/login", body=body)["token"])
                credentials.remember(url, user, transport.token, active=False)
                return request(method, path, **options)  # type: ignore[arg-type]

        transport.request = again  # type: ignore[method-assign, assignment]


def _user(args: argparse.Namespace, url: str) -> tuple[str, str | None]:
    """The user, and the password if the environment gives one."""
    user, password = os.environ.get("DET_USER"), os.environ.get("DET_PASS")
    if args.user:
        return args.user, password if user in (None, args.user) else None
    if user:
        return user, password
    return credentials.active_user(url) or FALLBACK_USER, password


def _ask(user: str) -> str:
    if not sys.stdin.isatty():
        raise ClientError(f"Not logged in as {user!r}. Run `det user login {user}`, or set DET_USER and DET_PASS.")
    return getpass.getpass(f"Password for user '{user}': ")
