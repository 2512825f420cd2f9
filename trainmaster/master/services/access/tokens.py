"""Access tokens: for programs, with a description and an expiry time."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select

from trainmaster.master.db import changes
from trainmaster.master.db.tables import User, UserSession
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import ACCESS_TOKEN, SESSIONS, Caller, digest, new_secret
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

FOREVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
_LIFESPAN = re.compile(r"(\d{1,7})h(?:0m)?(?:0s)?")


@dataclass(frozen=True)
class TokenQuery:
    """Filters of the list; empty means no restriction. `inactive`: revoked and expired ones too."""

    ids: Sequence[int] = ()
    username: str = ""
    inactive: bool = False
    sort_by: str = "created_at"
    descending: bool = False


_s = UserSession.__table__.c
SORTS: Mapping[str, ColumnElement[Any]] = {
    "user_id": _s.user_id,
    "expiry": _s.expires_at,
    "created_at": _s.id,
    "token_type": _s.kind,
    "revoked": _s.revoked,
    "description": _s.description,
}


class AccessTokens(BoundService):
    """Access tokens of users."""

    def list_page(self, caller: Caller, query: TokenQuery, offset: int, limit: int) -> Page[UserSession]:
        """Return the caller's own tokens, and everybody's for users who may see them."""
        statement = (
            select(UserSession).join(User, User.id == UserSession.user_id).where(UserSession.kind == ACCESS_TOKEN)
        )
        if not caller.holds(Permission.VIEW_OTHER_TOKEN):
            statement = statement.where(UserSession.user_id == caller.user_id)
        if query.ids:
            statement = statement.where(UserSession.id.in_(query.ids))
        if query.username:
            statement = statement.where(User.username == query.username.strip().lower())
        if not query.inactive and not query.ids:
            statement = statement.where(~UserSession.revoked, UserSession.expires_at > now())
        column = SORTS[query.sort_by]
        order = [column.desc(), _s.id.desc()] if query.descending else [column, _s.id]
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            rows = list(session.scalars(statement.order_by(*order).offset(window.start).limit(window.size)))
        return Page(rows, window)

    def create(self, caller: Caller, user_id: int, lifespan: str | None, description: str) -> tuple[str, int]:
        """Create a token; return it, which is shown only now, and its id. `lifespan` is hours as Go writes them
        (`48h`), or `-1`."""
        if user_id != caller.user_id:
            caller.require(Permission.CREATE_OTHER_TOKEN)
        ends = self._end(lifespan)
        token = new_secret(32)
        with self._store.transaction() as session:
            user = session.get(User, user_id)
            if user is None or not user.active:
                raise NotFound(f"There is no active user {user_id}.")
            users_tokens = (UserSession.user_id == user_id, UserSession.kind == ACCESS_TOKEN)
            bounds.check_count(session, "things", "There are {} access tokens of this user", *users_tokens)
            row = UserSession(
                user_id=user_id, token_hash=digest(token), expires_at=ends, kind=ACCESS_TOKEN, description=description
            )
            session.add(row)
            session.flush()
            log.info(
                "%s made access token %d of %s, good until %s", caller.username, row.id, user.username, ends.date()
            )
            return token, row.id

    def patch(self, caller: Caller, token_id: int, description: str | None, revoke: bool) -> UserSession:
        """Change a token. A revoked token stays revoked."""
        with self._store.transaction() as session:
            row = session.get(UserSession, token_id, with_for_update=True)
            is_own = row is not None and row.user_id == caller.user_id
            if row is None or row.kind != ACCESS_TOKEN or not (is_own or caller.holds(Permission.VIEW_OTHER_TOKEN)):
                raise NotFound(f"There is no access token {token_id}.")
            if not is_own:
                caller.require(Permission.ADMINISTRATE_TOKEN)
            if description is not None:
                row.description = description
            if revoke and not row.revoked:
                row.revoked = True
                wake(session, changes.SUBJECT, SESSIONS)
                log.info("%s revoked access token %d of user %d", caller.username, row.id, row.user_id)
            return row

    def _end(self, lifespan: str | None) -> dt.datetime:
        most = self._settings.token_days_at_most
        if not lifespan:
            return FOREVER if self._settings.token_days == -1 else now() + dt.timedelta(days=self._settings.token_days)
        if lifespan == "-1":
            if most != -1:
                raise Invalid(f"lifespan: access tokens live at most {most} days here.")
            return FOREVER
        match = _LIFESPAN.fullmatch(lifespan)
        hours = int(match[1]) if match else 0
        if hours <= 0:
            raise Invalid(f"lifespan: {lifespan!r} is neither a number of hours such as 48h nor -1.")
        if most != -1 and hours > most * 24:
            raise Invalid(f"lifespan: access tokens live at most {most} days here.")
        return now() + dt.timedelta(hours=hours)
