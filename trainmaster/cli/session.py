"""Opens sessions for `det`: the master and the user come from `-m`, `-u` and the environment; asks for passwords."""

from __future__ import annotations

import argparse
import os
import sys

from trainmaster.client import credentials
from trainmaster.client import login as logins
from trainmaster.client.errors import ClientError, NotLoggedIn, NotTrusted
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport


class UsageError(Exception):
    """Wrong arguments of a command; exit status 2."""


def master_url(args: argparse.Namespace) -> str:
    """`-m`, DET_MASTER, DET_MASTER_ADDR or localhost:8080, in full. Raises ClientError."""
    return logins.master_url(args.master)


def connect(args: argparse.Namespace) -> Master:
    """Return a client with a session. Raises ClientError."""
    return Master(session(args))


def say(notice: str) -> None:
    """Print what a command waits for."""
    print(f"det: {notice}", file=sys.stderr, flush=True)


def session(args: argparse.Namespace) -> Transport:
    """Return a transport with a session; asks for a password only at a terminal. Raises ClientError."""
    url = master_url(args)
    user, password = identity(args, url)
    return logins.session(url, user, password, ask=ask, warn=_warn)


def login(args: argparse.Namespace, username: str | None) -> str:
    """Open a new session and make commands act as its user. Returns the name. Raises ClientError."""
    url = master_url(args)
    if username:
        args.user = username
    user, password = identity(args, url)
    token, mark = logins.new_session(url, user, ask(user) if password is None else password)
    credentials.remember(url, user, token, active=True)
    credentials.remember_mark(url, user, mark)
    return user


def identity(args: argparse.Namespace, url: str) -> tuple[str, str | None]:
    """Return the user, and the password if the environment has one."""
    return logins.identity(url, args.user)


def ask(user: str) -> str:
    """Ask for a password at the terminal. Raises NotLoggedIn without a terminal."""
    if not sys.stdin.isatty():
        how = f"Run `det user login {user}` at a terminal, or set DET_USER and DET_PASS."
        raise NotLoggedIn(401, f"You are not logged in as {user}. {how}")
    import getpass

    try:
        return getpass.getpass(f"Password for user '{user}': ")
    except EOFError:
        raise ClientError("No password was given.") from None


def secret(question: str, what: str) -> str:
    """Read a secret typed at the terminal, or the first line of standard input. Raises UsageError if there is none."""
    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(question)
    else:
        value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise UsageError(f"type {what} at a terminal, or pipe it in")
    return value


def warn_of_argument(what: str) -> None:
    """Warn of a secret among the arguments, which scripts written for Determined's client may pass."""
    _warn(f"{what.lower()} is visible in the process list and the shell's history: leave it out, and pipe it in")


def trusts_now(args: argparse.Namespace, error: NotTrusted) -> bool:
    """Ask the user at the terminal whether to trust the master's certificate from now on; returns the answer. Raises
    ClientError."""
    if os.environ.get("DET_MASTER_CERT_FILE") or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from trainmaster.client import tls

    url = master_url(args)
    shown = tls.presented(url)
    accepted = tls.accepted(url)
    print(f"det: {error}", file=sys.stderr)
    if accepted is not None and tls.fingerprint(accepted) != tls.fingerprint(shown):
        print("This is not the certificate that you accepted before: ask your administrator why.", file=sys.stderr)
    print(f"SHA-256 fingerprint of the certificate that it presents:\n{tls.fingerprint(shown)}", file=sys.stderr)
    print("Compare it with the one that `trainmaster tls show` prints on the master's machine.", file=sys.stderr)
    print("Trust it from now on? [y/N]: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    tls.accept(url, shown)
    return True


def _warn(message: str) -> None:
    print(f"det: warning: {message}", file=sys.stderr)
