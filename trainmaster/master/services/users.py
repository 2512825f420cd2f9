"""Users: made, changed, listed; and what they have set for themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.orm import Session

from trainmaster.master.db.access import RoleAssignment, UserSetting
from trainmaster.master.db.tables import User, UserSession
from trainmaster.master.services.accounts import Account, check_account
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from trainmaster.master.services.identity import Caller, digest, hash_password
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.permissions import Permission
from trainmaster.master.services.store import Store

NAME = re.compile(r"[^\s\x00-\x1f/]{1,80}")


@dataclass(frozen=True)
class Password:
    """As it was sent; `hashed`: the way Determined's clients do."""

    text: str
    hashed: bool


@dataclass(frozen=True)
class UserChange:
    """What is to be set; None leaves it."""

    username: str | None = None
    display_name: str | None = None
    admin: bool | None = None
    active: bool | None = None
    remote: bool | None = None
    password: Password | None = None
    account: Account | None = None

    @property
    def own_affair(self) -> bool:
        """Whether users may do this to themselves."""
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


def list_page(store: Store, query: UserQuery, offset: int, limit: int) -> Page[User]:
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
    with store.transaction() as session:
        total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
        window = cut(offset, limit, total)
        rows = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
    return Page(rows, window)


def create(store: Store, change: UserChange) -> User:
    """A user without a password can log in only elsewhere (`remote`). Raises Invalid, Conflict."""
    with store.transaction() as session:
        row = User(username=_free_name(session, change.username or "", None), modified_at=now())
        remote = bool(change.remote)
        if not remote and change.password is None:
            raise Invalid("password: give the user a password, or say that it is remote.")
        if remote and change.password is not None and change.password.text:
            raise Invalid("password: a remote user has none here.")
        row.admin, row.remote = bool(change.admin), remote
        row.active = change.active is not False
        _apply(row, UserChange(display_name=change.display_name, account=change.account))
        if not remote and change.password is not None:
            row.password_hash = _hashed(change.password)
        session.add(row)
        session.flush()
        return row


def patch(store: Store, caller: Caller, user_id: int, change: UserChange, *, token: str = "") -> User:
    """Users may change their own password and display name. After a new password the user's other sessions have ended;
    `token`: the one that stays. Raises Forbidden, NotFound, Invalid, Conflict."""
    if not (caller.user_id == user_id and change.own_affair):
        caller.require(Permission.ADMINISTRATE_USER)
    with store.transaction() as session:
        row = session.get(User, user_id, with_for_update=True)
        if row is None:
            raise NotFound(f"There is no user {user_id}.")
        if change.username is not None:
            row.username = _free_name(session, change.username, user_id)
        _apply(row, change)
        if change.password is not None:
            if row.remote:
                raise Invalid(f"The user {row.username!r} is remote and has no password here.")
            row.password_hash = _hashed(change.password)
            mine = (UserSession.user_id == user_id, UserSession.kind == "USER_SESSION")
            session.execute(delete(UserSession).where(*mine, UserSession.token_hash != digest(token)))
        session.flush()
        _keep_an_administrator(session)
        row.modified_at = now()
        session.flush()
        return row


def set_active(store: Store, caller: Caller, ids: Sequence[int], active: bool) -> list[tuple[int, str]]:
    """For each user, what went wrong, or nothing."""
    found = []
    for user_id in ids:
        try:
            patch(store, caller, user_id, UserChange(active=active))
            found.append((user_id, ""))
        except Forbidden:
            raise
        except ServiceError as error:
            found.append((user_id, error.message))
    return found


# -- what they have set for themselves ----------------------------------------------------------------------------


def settings(store: Store, user_id: int) -> list[UserSetting]:
    with store.transaction() as session:
        query = select(UserSetting).where(UserSetting.user_id == user_id)
        return list(session.scalars(query.order_by(UserSetting.storage_path, UserSetting.key)))


def set_settings(store: Store, user_id: int, wanted: Sequence[tuple[str, str, str]]) -> None:
    """`wanted`: storage path, key and value of each; an empty value takes it away."""
    with store.transaction() as session:
        session.get(User, user_id, with_for_update=True)
        for path, key, value in wanted:
            row = session.get(UserSetting, (user_id, path, key))
            if row is None and value:
                session.add(UserSetting(user_id=user_id, storage_path=path, key=key, value=value))
                session.flush()
            elif row is not None and value:
                row.value = value
            elif row is not None:
                session.delete(row)


def reset_settings(store: Store, user_id: int) -> None:
    with store.transaction() as session:
        session.execute(delete(UserSetting).where(UserSetting.user_id == user_id))


# -- inside -------------------------------------------------------------------------------------------------------


def _apply(row: User, change: UserChange) -> None:
    if change.display_name is not None:
        row.display_name = change.display_name.strip() or None
    if change.admin is not None:
        row.admin = change.admin
    if change.active is not None:
        row.active = change.active
    if change.remote is not None:
        row.remote = change.remote
        row.password_hash = None if change.remote else row.password_hash
    if change.account is not None:
        check_account(change.account)
        row.agent_uid, row.agent_user = change.account.uid, change.account.user
        row.agent_gid, row.agent_group = change.account.gid, change.account.group


def _hashed(password: Password) -> str:
    if not password.text:
        raise Invalid("password: it must not be empty.")
    return hash_password(password.text, is_hashed=password.hashed)


def _free_name(session: Session, name: str, mine: int | None) -> str:
    name = name.strip().lower()
    if not NAME.fullmatch(name):
        raise Invalid(f"{name!r} cannot be a user's name: it has up to 80 characters, no spaces and no slash.")
    taken = session.scalar(select(User.id).where(User.username == name))
    if taken not in (None, mine):
        raise Conflict(f"There is a user {name!r} already.")
    return name


def _keep_an_administrator(session: Session) -> None:
    left = select(User.id).where(User.admin, User.active, User.password_hash.is_not(None)).limit(1)
    if session.scalar(left) is None:
        raise Conflict("Nobody would be left who can administrate: make another user an administrator first.")
