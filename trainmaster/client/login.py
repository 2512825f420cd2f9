"""Which master, and as whom: the rules of Determined's client, for programs and for `det`."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainmaster.client import credentials
from trainmaster.client.errors import ClientError, NotLoggedIn
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport, canonical_url

FALLBACK_USER = "determined"
Warn = Callable[[str], None]


def connect(
    master: str | None = None, *, user: str | None = None, password: str | None = None, token: str | None = None
) -> Master:
    """A master, and a session with it: the one that `det user login` or an earlier call left, else a new one.

    Args:
        master: its address. Default: DET_MASTER, DET_MASTER_ADDR, or localhost:8080.
        user: default: DET_USER, or who logged in last.
        password: default: DET_PASS.
        token: a session's or an access token, used as it is. Default: DET_USER_TOKEN, where DET_USER is set.

    DET_MASTER_CERT_FILE names the certificates to trust, or is `noverify`. Raises ClientError; NotLoggedIn when
    there is neither a session nor a password.
    """
    url = master_url(master)
    http = transport(url)
    if token is not None:
        http.token = token
        return Master(http)
    name, found = identity(url, user)
    return Master(session(url, name, found if password is None else password, ask=_nobody_to_ask))


def master_url(told: str | None = None) -> str:
    """The address in full. Raises ClientError."""
    return canonical_url(told or os.environ.get("DET_MASTER") or os.environ.get("DET_MASTER_ADDR") or "localhost:8080")


def transport(url: str) -> Transport:
    """A way to the master without a session."""
    return Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE") or None)


def identity(url: str, told: str | None = None) -> tuple[str, str | None]:
    """The user, and the password if the environment gives one: DET_PASS is DET_USER's where that is set."""
    user, password = os.environ.get("DET_USER"), os.environ.get("DET_PASS")
    if told:
        return told, password if user in (None, "", told) else None
    return user or credentials.active_user(url) or FALLBACK_USER, password


def new_session(url: str, user: str, password: str) -> tuple[str, str]:
    """A bearer token, and the mark to keep for the next log-in. Raises ClientError."""
    return Master(transport(url)).login_with_mark(user, password, credentials.mark(url, user))


def session(
    url: str, user: str, password: str | None, *, ask: Callable[[str], str], warn: Warn = lambda _: None
) -> Transport:
    """A way to the master with a session: the one that is kept, DET_USER_TOKEN's, or a new one with the password.

    `ask` gives the password of a user where it is not known; `warn` is told when a session cannot be kept. Raises
    ClientError.
    """

    def log_in() -> str:
        token, mark = new_session(url, user, ask(user) if password is None else password)
        try:
            credentials.remember(url, user, token, active=False)
            credentials.remember_mark(url, user, mark)
        except ClientError as error:  # a home that cannot be written must not stop the work
            warn(str(error))
        return token

    http = transport(url)
    kept = credentials.token(url, user)
    of_job = os.environ.get("DET_USER_TOKEN") if os.environ.get("DET_USER") == user else None
    if kept:
        http.token = kept
        # In a job whose user's home holds a session that has ended, the job's own token is good.
        http.renew = (lambda: of_job) if of_job else log_in
        return http
    http.token = of_job or log_in()
    return http


def _nobody_to_ask(user: str) -> str:
    raise NotLoggedIn(
        401,
        f"There is no session as {user}. Run `det user login {user}`, set DET_USER and DET_PASS, or name a password.",
    )
