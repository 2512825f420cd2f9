"""A user's own log-in sessions: lists them, and ends one. Access tokens are in `tokens`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, select

from trainmaster.master.db.tables import UserSession
from trainmaster.master.services.access.identity import SESSION, SESSIONS, Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.store import wake

MOST = 200  # sessions in one answer, newest first


class Sessions(BoundService):
    """A user's own log-in sessions."""

    def list_own(self, caller: Caller) -> Sequence[UserSession]:
        """Return the caller's valid sessions, newest first."""
        query = select(UserSession).where(*_own(caller)).order_by(UserSession.id.desc()).limit(MOST)
        with self._store.transaction() as session:
            return list(session.scalars(query))

    def end(self, caller: Caller, session_id: int) -> None:
        """End one of the caller's sessions; its open connections close within seconds. Raises NotFound."""
        query = delete(UserSession).where(UserSession.id == session_id, *_own(caller))
        with self._store.transaction() as session:
            if session.scalar(query.returning(UserSession.id)) is None:
                raise NotFound(f"You have no session {session_id}.")
            wake(session, SESSIONS)


def _own(caller: Caller) -> tuple[ColumnElement[bool], ...]:
    valid = (~UserSession.revoked, UserSession.expires_at > now())
    return (UserSession.user_id == caller.user_id, UserSession.kind == SESSION, *valid)
