"""The caller's own log-in sessions: each browser and each terminal has one."""

from __future__ import annotations

from fastapi import APIRouter

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape, Time

router = APIRouter(prefix="/api/x1", tags=["users"])


class SessionShape(Shape):
    """A log-in session. `origin`: of the page where it began; empty for programs. `current`: the caller's."""

    id: int
    created_at: Time
    expires_at: Time
    description: str
    origin: str
    current: bool


class SessionsAnswer(Shape):
    sessions: list[SessionShape]


@router.get("/sessions")
def list_sessions(master: UsesMaster, caller: UserCaller) -> SessionsAnswer:
    """List the caller's valid sessions, newest first."""
    return SessionsAnswer(
        sessions=[
            SessionShape(
                id=row.id,
                created_at=row.created_at,
                expires_at=row.expires_at,
                description=row.description,
                origin=row.origin,
                current=row.id == caller.session_id,
            )
            for row in master.sessions.list_own(caller)
        ]
    )


@router.delete("/sessions/{session_id}")
def end_session(session_id: int, master: UsesMaster, caller: UserCaller) -> dict[str, object]:
    """End one of the caller's sessions."""
    master.sessions.end(caller, session_id)
    return {}
