"""Authentication: users, their sessions, and the tokens of allocations."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error
from sqlalchemy import ARRAY, ColumnElement, Text, any_, bindparam, delete, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, User, UserSession
from trainmaster.master.services.access.permissions import ADMINISTRATORS, SEEING, Permission
from trainmaster.master.services.batches import single
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import (
    AccessDenied,
    BadCredentials,
    Forbidden,
    NotActive,
    NotFound,
    Unauthenticated,
)
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

SESSIONS = "sessions"  # the wake-up subject of `http.session_guard`, which closes connections of ended sessions
SESSION, ACCESS_TOKEN = "USER_SESSION", "ACCESS_TOKEN"  # kinds of bearer tokens
SESSION_LIFE = dt.timedelta(days=7)
TOKEN_GRACE = dt.timedelta(minutes=10)  # time after the end of its attempt in which a job may still report
CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients put before a password they send hashed
LOG_IN_AGAIN = "The session is not valid or has expired: log in again with `det user login`."
DEACTIVATED = "The account is deactivated: ask an administrator to activate it."
FIRST_USERS = (("admin", True), ("determined", False))

_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)  # OWASP's minimum for Argon2id
_NOBODY = _hasher.hash("nobody")


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request. For a job, `allocation_id` names it, and it acts for its task's owner. For
    a program in a job that acts as its owner, `inside` names the attempt: it is a user without an administrator's
    rights.

    `grants`: each permission that roles give, with the workspaces for which they do (None: everywhere); None where the
    master does not use roles. `workspaces`: for which the request's own permission is held, None for everywhere.
    """

    user_id: int
    username: str
    admin: bool
    allocation_id: str | None = None
    task_id: str | None = None
    trial_id: int | None = None
    grants: Mapping[Permission, frozenset[int] | None] | None = None
    workspaces: frozenset[int] | None = None
    session_id: int | None = None  # id of a user's session or access token
    inside: str | None = None

    def may_change(self, owner_id: int) -> bool:
        """Whether the caller may change an entity of `owner_id`; with roles the owner does not matter."""
        return self.allocation_id is None and (self.admin or self.grants is not None or self.user_id == owner_id)

    def require_owner(self, what: str, *owner_ids: int) -> None:
        """Raise Forbidden unless the caller may change an entity of one of `owner_ids`. `what`: the entity, as the
        subject of the error's sentence."""
        if not any(map(self.may_change, owner_ids)):
            raise Forbidden(f"{what} belongs to somebody else.")

    def owns(self, owner_id: int) -> bool:
        """Whether an entity of `owner_id` is the caller's own, or the caller an administrator: roles do not matter. It
        protects what others' jobs load, and access to others' jobs."""
        return self.allocation_id is None and (self.admin or self.user_id == owner_id)

    def holds(self, permission: Permission, workspace_id: int | None = None) -> bool:
        """Whether the caller holds a permission in a workspace, or everywhere."""
        if self.allocation_id is not None:
            return False
        if self.admin or self.grants is None:
            return self.admin or permission not in ADMINISTRATORS
        if permission not in self.grants:
            return False
        where = self.grants[permission]
        return where is None or workspace_id in where

    def holds_somewhere(self, permission: Permission) -> bool:
        """Whether the caller holds a permission in any workspace."""
        return self.holds(permission) or (self.allocation_id is None and permission in (self.grants or ()))

    def require(self, permission: Permission, workspace_id: int | None = None, absent: str = "") -> None:
        """Raise Forbidden; or NotFound with the sentence `absent` where the caller sees nothing of the workspace, so
        that what is there has the same answer as what is not."""
        if self.holds(permission, workspace_id):
            return
        if self.grants is None:
            raise Forbidden("Only an administrator may do this.")
        if absent and workspace_id is not None and not self.sees_anything(workspace_id):
            raise NotFound(absent)
        where = "" if workspace_id is None else f" in workspace {workspace_id}"
        raise AccessDenied(f"This needs the permission {permission.name}, which none of your roles gives{where}.")

    def where(self, permission: Permission) -> frozenset[int] | None:
        """Return the workspaces for which a permission is held; None for everywhere."""
        return None if self.grants is None else self.grants.get(permission, frozenset())

    def sees(self, workspace_id: int) -> bool:
        return self.workspaces is None or workspace_id in self.workspaces

    def sees_anything(self, workspace_id: int) -> bool:
        """Whether the caller may see a workspace, or some of what is in it."""
        return any(self.holds(permission, workspace_id) for permission in SEEING)

    def check(self, workspace_id: int, absent: str) -> None:
        """Raise Forbidden where the caller does not hold the request's permission; or NotFound with the sentence
        `absent` where they see nothing of the workspace: the answer for what is not there."""
        if not self.sees(workspace_id):
            if not self.sees_anything(workspace_id):
                raise NotFound(absent)
            raise AccessDenied(f"Your roles do not allow this in workspace {workspace_id}.")


def client_hash(password: str) -> str:
    """Return what a Determined client sends instead of `password` (SHA-512, hex); the empty password stays empty."""
    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest() if password else ""


def ensure_first_users(session: Session, passwords: Mapping[str, str]) -> bool:
    """Create `admin` and `determined` in an empty database. True when they were created."""
    if session.scalar(select(User.id).limit(1)) is not None:
        return False
    hashes = {name: _hasher.hash(client_hash(passwords[name])) for name, _ in FIRST_USERS}
    session.add_all(User(username=name, admin=admin, password_hash=hashes[name]) for name, admin in FIRST_USERS)
    session.flush()
    return True


def new_secret(size: int) -> str:
    """`size` random bytes as URL-safe Base64, for a person to give to a command: it does not begin with `-`, which a
    command would read as an option."""
    while (secret := secrets.token_urlsafe(size)).startswith("-"):
        pass
    return secret


def generate_password() -> str:
    """18 characters that satisfy Determined's complexity rule (upper, lower, digit)."""
    while True:
        word = new_secret(13)
        if any(c.isupper() for c in word) and any(c.islower() for c in word) and any(c.isdigit() for c in word):
            return word


class Identities(BoundService):
    """Log-ins, sessions and the tokens of users, access tokens and jobs."""

    def log_in(self, username: str, password: str, *, is_hashed: bool, origin: str = "") -> tuple[str, User]:
        """Create a session and return its bearer token. `origin`: of the page where a browser's user typed this, as
        the browser reports it. Raises BadCredentials for a wrong name or password (the same sentence for both),
        NotActive."""
        sent = password if is_hashed else client_hash(password)
        with self._store.transaction() as session:
            user = session.scalar(select(User).where(User.username == username.strip().lower()))
            # The same work for an unknown name as for a wrong password: the time taken must not reveal which.
            stored = (user.password_hash if user else None) or _NOBODY
            if not _verify(stored, sent) or user is None or user.password_hash is None:
                raise BadCredentials("The user name or the password is wrong.")
            if not user.active:  # revealed only to somebody who knows the password
                raise NotActive(DEACTIVATED)
            token = _new_session(session, user, origin)
        return token, user

    def log_in_again(self, user_id: int, *, origin: str, description: str) -> tuple[str, User]:
        """Create a further session of a user who is known, and return its bearer token."""
        with self._store.transaction() as session:
            user = session.get_one(User, user_id)
            token = _new_session(session, user, origin, description)
        return token, user

    def is_logged_in(self, session_id: int) -> bool:
        """Whether a session was begun by logging in; an access token was not."""
        with self._store.autocommit() as session:
            return session.scalar(select(UserSession.kind).where(UserSession.id == session_id)) == SESSION

    def check_password(self, user_id: int, password: str, *, is_hashed: bool) -> None:
        """Raise Forbidden for another password than the user's."""
        with self._store.autocommit() as session:
            stored = session.scalar(select(User.password_hash).where(User.id == user_id))
        sent = password if is_hashed else client_hash(password)
        if not _verify(stored or _NOBODY, sent) or stored is None:
            raise Forbidden("The present password is wrong.")

    def new_mark(self, username: str) -> str:
        """Return the mark that a client sends at later log-ins of the same user, so that others' wrong passwords do not
        delay it. It grants no access."""
        key = secrets.token_urlsafe(12)
        return f"{key}.{self._mark_of(username, key)}"

    def known_mark(self, username: str, shown: str) -> str:
        """Return the mark, if it is one of this user's; else an empty text."""
        key, _, mac = shown.partition(".")
        good = bool(key) and hmac.compare_digest(mac.encode(errors="replace"), self._mark_of(username, key).encode())
        return key if good else ""

    def _mark_of(self, username: str, key: str) -> str:
        text = f"client mark\0{username.strip().lower()}\0{key}".encode(errors="replace")
        return hmac.new(self._settings.secret, text, hashlib.sha256).hexdigest()

    def log_out(self, token: str) -> None:
        """End the session. An access token is revoked, not logged out: other programs may use the same one."""
        this_session = (UserSession.token_hash == digest(token), UserSession.kind == SESSION)
        with self._store.transaction() as session:
            session.execute(delete(UserSession).where(*this_session))
            wake(session, SESSIONS)

    def get_user(self, user_id: int) -> User:
        with self._store.transaction() as session:
            user = session.get(User, user_id)
            if user is None:
                raise NotFound(f"There is no user {user_id}.")
            return user

    def get_user_by_name(self, username: str) -> User:
        with self._store.transaction() as session:
            user = session.scalar(select(User).where(User.username == username.strip().lower()))
            if user is None:
                raise NotFound(f"There is no user {username!r}.")
            return user

    def session_token(self, allocation_id: str, token: str) -> str:
        """Return the secret of an allocation's job. Derived, not stored: staging a job twice gives it the same one."""
        mac = hmac.new(self._settings.secret, f"{allocation_id}\0{token}".encode(), hashlib.sha256).hexdigest()
        return f"alloc:{allocation_id}:{mac}"

    def owner_token(self, allocation_id: str, token: str) -> str:
        """Return the token with which programs in an attempt's job act as its owner, without an administrator's rights,
        as long as the attempt lives. Derived like the job's own."""
        mac = hmac.new(self._settings.secret, f"owner\0{allocation_id}\0{token}".encode(), hashlib.sha256).hexdigest()
        return f"owner:{allocation_id}:{mac}"

    def authenticate(self, token: str) -> Caller:
        """Authenticate `token`: a user's session, a job, or a program in one that acts as its owner. Raises
        Unauthenticated, NotActive."""
        if is_of_job(token):
            return single(self.authenticate_jobs([token]))
        if token.startswith("owner:"):
            return self._authenticate_owner(token)
        return self._user_of(UserSession.token_hash == digest(token))

    def by_session(self, session_id: int) -> Caller:
        """Return the owner of a valid session. Raises Unauthenticated, NotActive."""
        return self._user_of(UserSession.id == session_id)

    def origin_of(self, session_id: int) -> str:
        """Origin of the page on which a browser's user logged in; empty for sessions of programs."""
        with self._store.autocommit() as session:
            return session.scalar(select(UserSession.origin).where(UserSession.id == session_id)) or ""

    def valid_credentials(
        self, sessions: Collection[int], users: Collection[int], attempts: Collection[str] = ()
    ) -> ValidCredentials:
        """Return the ones of these that are still valid."""
        good = (UserSession.id.in_(sessions), ~UserSession.revoked, UserSession.expires_at > now())
        live = (Allocation.id.in_(attempts), Allocation.ended_at.is_(None))
        with self._store.transaction() as session:
            active = frozenset(session.scalars(select(User.id).where(User.id.in_(users), User.active)))
            running = frozenset(session.scalars(select(Allocation.id).where(*live))) if attempts else frozenset()
            return ValidCredentials(active, frozenset(session.scalars(select(UserSession.id).where(*good))), running)

    def _user_of(self, which: ColumnElement[bool]) -> Caller:
        with self._store.autocommit() as session:
            row = session.execute(
                select(User, UserSession).join(UserSession, UserSession.user_id == User.id).where(which)
            ).first()
        if row is None:
            raise Unauthenticated(LOG_IN_AGAIN)
        if refusal := _refusal(row.User, row.UserSession):
            what = "access token" if row.UserSession.kind == ACCESS_TOKEN else "session"
            log.info("refused the %s %d of %s: %s", what, row.UserSession.id, row.User.username, refusal)
            if not row.User.active:
                raise NotActive(DEACTIVATED)
            raise Unauthenticated(LOG_IN_AGAIN)
        return Caller(row.User.id, row.User.username, row.User.admin, session_id=row.UserSession.id)

    def _authenticate_owner(self, token: str) -> Caller:
        name = _allocation_in(token)
        row = self._attempts([name]).get(name)
        if row is None or not hmac.compare_digest(self.owner_token(row.id, row.token).encode(), token.encode()):
            raise Unauthenticated("The token of the job's owner is not valid.")
        if row.ended_at is not None:
            raise Unauthenticated("The job's attempt has ended, and with it the token for acting as its owner.")
        if not row.active:
            raise Unauthenticated(LOG_IN_AGAIN)
        return Caller(row.owner_id, row.username, False, inside=row.id)

    def authenticate_jobs(self, tokens: Sequence[str]) -> list[Caller | Exception]:
        """Authenticate the jobs of `tokens` with one query, since many jobs call at the same time; Unauthenticated in
        the place of an invalid one."""
        rows = self._attempts({_allocation_in(token) for token in tokens})
        return [self._job_of(token, rows.get(_allocation_in(token))) for token in tokens]

    def _job_of(self, token: str, row: Any) -> Caller | Exception:
        if row is None or not self._is_of(token, row):
            return Unauthenticated("The job's token is not valid.")
        try:
            check_counts(row.ended_at)
        except Unauthenticated as error:
            return error
        return Caller(row.owner_id, row.username, False, row.id, row.task_id, row.trial_id)

    def _attempts(self, names: Collection[str]) -> dict[str, Any]:
        with self._store.autocommit() as session:
            return {row.id: row for row in session.execute(_ATTEMPTS, {"names": list(names)})}

    def _is_of(self, token: str, row: Any) -> bool:
        return hmac.compare_digest(self.session_token(row.id, row.token).encode(), token.encode())


def _new_session(session: Session, user: User, origin: str, description: str = "") -> str:
    token = new_secret(32)
    ends = now() + SESSION_LIFE
    row = UserSession(
        user_id=user.id, token_hash=digest(token), expires_at=ends, origin=origin, description=description
    )
    session.add(row)
    user.last_auth_at = now()
    return token


def hash_password(password: str, *, is_hashed: bool) -> str:
    """Return the hash of a password for storage; `is_hashed`: it is already hashed as Determined's clients send it."""
    return _hasher.hash(password if is_hashed else client_hash(password))


def is_of_job(token: str) -> bool:
    """Whether a token has the form of a job's, for `authenticate_jobs`."""
    return token.startswith("alloc:")


@dataclass(frozen=True)
class ValidCredentials:
    """Ids of active users, of valid sessions, and of attempts that have not ended."""

    users: frozenset[int]
    sessions: frozenset[int]
    attempts: frozenset[str]


def _refusal(user: User, session: UserSession) -> str:
    """Why a bearer token is not valid; empty when it is."""
    if not user.active:
        return "the user is deactivated"
    if session.revoked:
        return "it is revoked"
    return "it has expired" if session.expires_at < now() else ""


def _allocation_in(token: str) -> str:
    parts = token.split(":")
    return parts[1] if len(parts) == 3 else ""


def check_counts(ended_at: dt.datetime | None) -> None:
    """Raise Unauthenticated for the token of a job whose attempt ended more than TOKEN_GRACE ago."""
    if ended_at is not None and now() - ended_at > TOKEN_GRACE:
        raise Unauthenticated("The job's attempt has ended, and its token with it.")


def digest(token: str) -> bytes:
    """Return the hash of a token for storage."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _verify(stored: str, sent: str) -> bool:
    try:
        return _hasher.verify(stored, sent)
    except Argon2Error:
        return False


def webhook_key(secret: bytes) -> str:
    """Return the key that signs webhooks' messages where the configuration names none: the same after every start."""
    return hmac.new(secret, b"webhooks", hashlib.sha256).hexdigest()


def random_secret() -> bytes:
    return os.urandom(32)


# Every job's first call runs this statement: it is built once.
_ATTEMPTS = (
    select(
        Allocation.id,
        Allocation.token,
        Allocation.ended_at,
        Allocation.task_id,
        Allocation.trial_id,
        Allocation.owner_id,
        User.username,
        User.active,
    )
    .join(User, User.id == Allocation.owner_id)
    .where(Allocation.id == any_(bindparam("names", type_=ARRAY(Text))))
)
