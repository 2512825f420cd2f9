"""Chooses the master and the user, and opens a session, by the rules of Determined's client; for programs and for
`det`."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainmaster.client import credentials
from trainmaster.client.address import canonical_url
from trainmaster.client.errors import ClientError, NotLoggedIn
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport

FALLBACK_USER = "determined"
Warn = Callable[[str], None]


def connect(
    master: str | None = None, *, user: str | None = None, password: str | None = None, token: str | None = None
) -> Master:
    """Open a session with a master: the one that `det user login` or an earlier call left, else a new one.

    DET_MASTER_CERT_FILE names the certificates to trust, or is `noverify`.

    Args:
        master: Its address. Default: DET_MASTER, DET_MASTER_ADDR, or localhost:8080.
        user: Name of the user. Default: DET_USER, or who logged in last.
        password: Default: DET_PASS.
        token: A session's or an access token, used as it is. Default: DET_USER_TOKEN, where DET_USER is set.

    Returns:
        The master.

    Raises:
        NotLoggedIn: There is neither a session nor a password, or the password is wrong.
        MasterUnreachable: A new session is needed and the master does not answer.
        ClientError: The address is no address, or the token store cannot be read.
    """
    url = master_url(master)
    http = transport(url)
    if token is not None:
        http.token = token
        return Master(http)
    name, found = identity(url, user)
    return Master(session(url, name, found if password is None else password, ask=_no_prompt))


def master_url(given: str | None = None) -> str:
    """Return the master's address in full; `given` comes before the environment. Raises ClientError."""
    return canonical_url(given or os.environ.get("DET_MASTER") or os.environ.get("DET_MASTER_ADDR") or "localhost:8080")


def transport(url: str) -> Transport:
    """Return a transport to the master, without a session."""
    return Transport(url, certificate=os.environ.get("DET_MASTER_CERT_FILE") or None)


def identity(url: str, given: str | None = None) -> tuple[str, str | None]:
    """Return the user, and the password if the environment has one: DET_PASS is DET_USER's where that is set."""
    user, password = os.environ.get("DET_USER"), os.environ.get("DET_PASS")
    if given:
        return given, password if user in (None, "", given) else None
    return user or credentials.active_user(url) or FALLBACK_USER, password


def new_session(url: str, user: str, password: str) -> tuple[str, str]:
    """Log in. Returns a bearer token, and the mark to keep for the next log-in. Raises ClientError."""
    return Master(transport(url)).login_with_mark(user, password, credentials.mark(url, user))


def session(
    url: str, user: str, password: str | None, *, ask: Callable[[str], str], warn: Warn = lambda _: None
) -> Transport:
    """Return a transport with a session: the stored one, DET_USER_TOKEN's, or a new one with the password.

    `ask` is called for a user's password where it is not known; `warn` is called with a sentence when a session cannot
    be stored. Raises ClientError.
    """

    def log_in() -> str:
        token, mark = new_session(url, user, ask(user) if password is None else password)
        try:
            credentials.remember(url, user, token, active=False)
            credentials.remember_mark(url, user, mark)
        except ClientError as error:  # a home folder that cannot be written must not stop the work
            warn(str(error))
        return token

    http = transport(url)
    kept = credentials.token(url, user)
    job_token = os.environ.get("DET_USER_TOKEN") if os.environ.get("DET_USER") == user else None
    if kept:
        http.token = kept
        # In a job, the stored session of the user's home may have ended; the job's own token is valid.
        http.renew = (lambda: job_token) if job_token else log_in
        return http
    http.token = job_token or log_in()
    return http


def _no_prompt(user: str) -> str:
    raise NotLoggedIn(
        401,
        f"There is no session as {user}. Run `det user login {user}`, set DET_USER and DET_PASS, or give a password.",
    )
