"""Creates, changes and lists users, and stores their settings."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainmaster.config.names import only_dots
from trainmaster.master.db import changes
from trainmaster.master.db.organisation import RoleAssignment, UserSetting
from trainmaster.master.db.tables import User, UserSession
from trainmaster.master.services.access.accounts import Account, check_account
from trainmaster.master.services.access.identity import ACCESS_TOKEN, SESSION, SESSIONS, Caller, digest, hash_password
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, ServiceError
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

NAME = re.compile(r"[^\s\x00-\x1f\x7f/]{1,80}")
CLIENT_HASH = re.compile(r"[0-9a-f]{128}")  # form of a hashed password that is not empty: `identity.client_hash`


@dataclass(frozen=True)
class Password:
    """A password as it was sent; `hashed`: the way Determined's clients do."""

    text: str
    hashed: bool


@dataclass(frozen=True)
class UserChange:
    """Values to set; None leaves a value as it is."""

    username: str | None = None
    display_name: str | None = None
    admin: bool | None = None
    active: bool | None = None
    remote: bool | None = None
    password: Password | None = None
    account: Account | None = None
    end_tokens: bool = False  # with a new password, access tokens end too

    @property
    def words(self) -> str:
        """The values to set, for the log: no password."""
        secret = "a new password" if self.password is not None else ""
        shown = {"username": self.username, "admin": self.admin, "active": self.active, "remote": self.remote}
        account = f"account {self.account.user}" if self.account is not None else ""
        parts = [f"{key} {value}" for key, value in shown.items() if value is not None]
        return ", ".join(part for part in (*parts, account, secret) if part) or "the display name"

    @property
    def own_affair(self) -> bool:
        """Whether users may make this change to themselves."""
        return not any(
            value is not None for value in (self.username, self.admin, self.active, self.remote, self.account)
        )


@dataclass(frozen=True)
class UserQuery:
    """Filters of the list; empty means no restriction. `role_ids`: given to the user directly."""

    name: str = ""
    active: bool | None = None
    admin: bool | None = None
    role_ids: Sequence[int] = ()
    sort_by: str = "id"
    descending: bool = False


_u = User.__table__.c
_SHOWN = func.coalesce(func.nullif(_u.display_name, ""), _u.username)
SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": _u.id,
    "display_name": _u.display_name,
    "user_name": _u.username,
    "name": _SHOWN,
    "admin": _u.admin,
    "active": _u.active,
    "modified_time": _u.modified_at,
    "last_auth_time": _u.last_auth_at,
    "remote": _u.remote,
}


class Users(BoundService):
    """Users and their settings."""

    def list_page(self, query: UserQuery, offset: int, limit: int) -> Page[User]:
        statement = select(User)
        if query.name:
            parts = (User.username, User.display_name)
            statement = statement.where(or_(*(part.icontains(query.name, autoescape=True) for part in parts)))
        if query.active is not None:
            statement = statement.where(User.active == query.active)
        if query.admin is not None:
            statement = statement.where(User.admin == query.admin)
        if query.role_ids:
            held = select(RoleAssignment.user_id).where(RoleAssignment.role_id.in_(query.role_ids))
            statement = statement.where(User.id.in_(held.where(RoleAssignment.user_id.is_not(None))))
        column = SORTS[query.sort_by]
        order = [column.desc().nulls_last(), User.id.desc()] if query.descending else [column.nulls_last(), User.id]
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            rows = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
        return Page(rows, window)

    def create(self, caller: Caller, change: UserChange) -> User:
        """Create a user. A remote user has no password here. Raises Invalid, Conflict."""
        password, remote = change.password, bool(change.remote)
        if not remote and password is None:
            raise Invalid("password: give the user a password, or say that it is remote.")
        if remote and password is not None and password.text:
            raise Invalid("password: a remote user has none here.")
        with self._store.transaction() as session:
            row = User(admin=bool(change.admin), remote=remote, active=change.active is not False, modified_at=now())
            session.add(row)
            _call(session, row, change.username or "")
            _apply(row, UserChange(display_name=change.display_name, account=change.account))
            if not remote and password is not None:
                row.password_hash = _hashed(password)
            session.flush()
            log.info("%s made the user %s%s", caller.username, row.username, " (administrator)" if row.admin else "")
            return row

    def patch(self, caller: Caller, user_id: int, change: UserChange, *, token: str = "") -> User:
        """Users may change their own password and display name. After a new password the user's other sessions have
        ended (`token`: the one that stays), after a deactivation all. Raises Forbidden, NotFound, Invalid, Conflict."""
        if not (caller.user_id == user_id and change.own_affair):
            caller.require(Permission.ADMINISTRATE_USER)
        weaker = change.admin is False or change.active is False or bool(change.remote)
        with self._store.transaction() as session:
            if weaker:  # under the locks of all, so that two administrators cannot deactivate each other at once
                session.execute(select(User.id).where(User.admin).order_by(User.id).with_for_update())
            row = session.get(User, user_id, with_for_update=True)
            if row is None:
                raise NotFound(f"There is no user {user_id}.")
            if change.username is not None:
                _call(session, row, change.username)
            if change.display_name is not None:
                _refuse_taken(session, row, change.display_name.strip().lower())
            _apply(row, change)
            if change.password is not None:
                if row.remote:
                    raise Invalid(f"The user {row.username!r} is remote and has no password here.")
                row.password_hash = _hashed(change.password)
            session.flush()
            if weaker:
                _keep_an_administrator(session)
            if change.active is False or change.remote:
                _end_sessions(session, user_id, but="")
            elif change.password is not None:
                _end_sessions(session, user_id, but=token)
            if change.end_tokens:
                tokens = (UserSession.user_id == user_id, UserSession.kind == ACCESS_TOKEN)
                session.execute(
                    update(UserSession).where(*tokens, UserSession.token_hash != digest(token)).values(revoked=True)
                )
            row.modified_at = now()
            session.flush()
            wake(session, changes.SUBJECT, SESSIONS)  # a follower of changes may have lost its session
            log.info("%s changed the user %s: %s", caller.username, row.username, change.words)
            return row

    def set_active(self, caller: Caller, ids: Sequence[int], active: bool) -> list[tuple[int, str]]:
        """Activate or deactivate users; returns for each the error, or None."""
        results = []
        for user_id in ids:
            try:
                self.patch(caller, user_id, UserChange(active=active))
                results.append((user_id, ""))
            except Forbidden:
                raise
            except ServiceError as error:
                results.append((user_id, error.message))
        return results

    # -- what they have set for themselves ----------------------------------------------------------------------------
    def settings(self, user_id: int) -> list[UserSetting]:
        with self._store.transaction() as session:
            query = select(UserSetting).where(UserSetting.user_id == user_id)
            return list(session.scalars(query.order_by(UserSetting.storage_path, UserSetting.key)))

    def set_settings(self, user_id: int, wanted: Sequence[tuple[str, str, str]]) -> None:
        """Set settings. `wanted`: storage path, key and value of each; an empty value removes the setting."""
        last = {(path, key): value for path, key, value in wanted}
        rows = [  # in one order, so that two requests never deadlock
            {"user_id": user_id, "storage_path": path, "key": key, "value": value}
            for (path, key), value in sorted(last.items())
            if value
        ]
        gone = [where for where, value in last.items() if not value]
        with self._store.transaction() as session:
            if rows:
                added = insert(UserSetting).values(rows)
                same = (UserSetting.user_id, UserSetting.storage_path, UserSetting.key)
                session.execute(added.on_conflict_do_update(index_elements=same, set_={"value": added.excluded.value}))
            stale = (UserSetting.user_id == user_id, tuple_(UserSetting.storage_path, UserSetting.key).in_(gone))
            session.execute(delete(UserSetting).where(*stale))

    def reset_settings(self, user_id: int) -> None:
        with self._store.transaction() as session:
            session.execute(delete(UserSetting).where(UserSetting.user_id == user_id))


# -- inside -------------------------------------------------------------------------------------------------------


def _apply(row: User, change: UserChange) -> None:
    if change.display_name is not None:
        row.display_name = _own_display_name(row, change.display_name.strip())
    if change.admin is not None:
        row.admin = change.admin
    if change.active is not None:
        row.active = change.active
    if change.remote is not None:
        row.remote = change.remote
        row.password_hash = None if change.remote else row.password_hash
    if change.account is not None:
        account = check_account(change.account)
        row.agent_uid, row.agent_user = account.uid, account.user
        row.agent_gid, row.agent_group = account.gid, account.group


def _own_display_name(row: User, name: str) -> str | None:
    """Check a display name; None for an empty one. Lists show it instead of the username: so nobody may take one of
    the first users'. Raises Invalid."""
    low = name.lower()
    if low == "admin" and not row.admin:
        raise Invalid("Non-admin user cannot be renamed 'admin': choose another display name.")
    if low == "determined" and row.username != "determined":
        raise Invalid("User cannot be renamed 'determined': choose another display name.")
    return name or None


def _refuse_taken(session: Session, row: User, name: str) -> None:
    """Raise Invalid for a display name that is another user's name, in whatever case."""
    same = or_(User.username == name, func.lower(User.display_name) == name)
    if name and session.scalar(select(User.id).where(same, User.id != row.id).limit(1)) is not None:
        raise Invalid(f"can not change display name to {name}: found a similar username or display name.")


def _hashed(password: Password) -> str:
    """Hash a password. Raises Invalid for one that is too simple. For a hashed one this is unknown; the clients check
    it."""
    if password.hashed and not CLIENT_HASH.fullmatch(password.text):
        raise Invalid("password: it must not be empty; with isHashed it is what Determined's clients make of it.")
    text = "" if password.hashed else password.text
    if not password.hashed and (len(text) < 8 or not all(map(re.search, ("[A-Z]", "[a-z]", r"\d"), [text] * 3))):
        raise Invalid("password: it must have 8 characters at least, with an upper, a lower case letter and a digit.")
    return hash_password(password.text, is_hashed=password.hashed)


def _call(session: Session, row: User, name: str) -> None:
    row.username = name.strip().lower()
    if not NAME.fullmatch(row.username) or only_dots(row.username):
        raise Invalid(
            f"{name!r} cannot be a user's name: it has up to 80 characters, no spaces, no slash, not only dots."
        )
    try:
        session.flush()
    except IntegrityError:
        raise AlreadyExists(f"The user {name.strip().lower()!r} already exists.") from None


def _end_sessions(session: Session, user_id: int, *, but: str) -> None:
    """End a user's sessions. `but`: the token of the session that stays."""
    users_sessions = (UserSession.user_id == user_id, UserSession.kind == SESSION)
    session.execute(delete(UserSession).where(*users_sessions, UserSession.token_hash != digest(but)))


def _keep_an_administrator(session: Session) -> None:
    left = select(User.id).where(User.admin, User.active, User.password_hash.is_not(None)).limit(1)
    if session.scalar(left) is None:
        raise Conflict("No administrator would be left: make another user an administrator first.")
