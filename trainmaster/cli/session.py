"""Which master, and as whom: what `-m`, `-u` and the environment say."""

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
    """The command is written wrongly; exit status 2."""


def master_url(args: argparse.Namespace) -> str:
    """`-m`, DET_MASTER, DET_MASTER_ADDR or localhost:8080, in full. Raises ClientError."""
    return logins.master_url(args.master)


def connect(args: argparse.Namespace) -> Master:
    """A client with a session. Raises ClientError."""
    return Master(session(args))


def session(args: argparse.Namespace) -> Transport:
    """A way to the master with a session; asks for a password only at a terminal. Raises ClientError."""
    url = master_url(args)
    user, password = identity(args, url)
    return logins.session(url, user, password, ask=ask, warn=_warn)


def login(args: argparse.Namespace, username: str | None) -> str:
    """Log in anew and make that user the one that commands act as. Returns the name. Raises ClientError."""
    url = master_url(args)
    if username:
        args.user = username
    user, password = identity(args, url)
    token, mark = logins.new_session(url, user, ask(user) if password is None else password)
    credentials.remember(url, user, token, active=True)
    credentials.remember_mark(url, user, mark)
    return user


def identity(args: argparse.Namespace, url: str) -> tuple[str, str | None]:
    """The user, and the password if the environment gives one."""
    return logins.identity(url, args.user)


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


def secret(question: str, what: str) -> str:
    """A secret that is typed at the terminal, or the first line of what is piped in. Raises UsageError."""
    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass(question)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise UsageError(f"{what} is typed at a terminal, or piped in")
    return given


def warn_of_argument(what: str) -> None:
    """Scripts that were written for Determined's client go on working."""
    _warn(f"{what.lower()} stands in the list of processes and in the shell's history: leave it out, and pipe it in")


def trusts_now(args: argparse.Namespace, error: NotTrusted) -> bool:
    """Whether the person at the terminal says yes to the master's certificate, which is believed from then on. Raises
    ClientError."""
    if os.environ.get("DET_MASTER_CERT_FILE") or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from trainmaster.client import tls

    url = master_url(args)
    shown = tls.presented(url)
    before = tls.accepted(url)
    print(f"det: {error}", file=sys.stderr)
    if before is not None and tls.fingerprint(before) != tls.fingerprint(shown):
        print("This is not the certificate that you said yes to before: ask your administrator why.", file=sys.stderr)
    print(f"SHA-256 fingerprint of the certificate that it shows:\n{tls.fingerprint(shown)}", file=sys.stderr)
    print("Compare it with the one that `trainmaster tls show` prints on the master's machine.", file=sys.stderr)
    print("Believe it from now on? [y/N]: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    tls.accept(url, shown)
    return True


def _warn(what: str) -> None:
    print(f"det: warning: {what}", file=sys.stderr)
