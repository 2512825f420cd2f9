"""Endpoints to log in, log out and show the current user."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from trainmaster.master.api.schemas.entities import User
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http import cookies
from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UserCaller, UsesMaster, bearer
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services import addresses
from trainmaster.master.services.errors import Busy

router = APIRouter(prefix="/api/v1", tags=["auth"])
T = TypeVar("T")
LONGEST_NAME = 100  # characters of a name that are distinguished; users' names have 80 at most


class LoginRequest(Body):
    username: str
    password: str
    is_hashed: bool = False
    client_mark: Annotated[str, Field(max_length=200)] = ""  # ours: the mark of an earlier log-in


class LoginAnswer(Shape):
    token: str
    user: User
    client_mark: str  # ours: for the client to keep, and to send when this user logs in again


class UserAnswer(Shape):
    user: User


@router.post("/auth/login")
async def login(request: Request, body: LoginRequest, master: UsesMaster) -> LoginAnswer:
    return await enter(request, body, master)


async def enter(request: Request, body: LoginRequest, master: ServedMaster, *, origin: str = "") -> LoginAnswer:
    """Start a session. `origin`: of the web page on which the password was typed; empty for programs.

    A coroutine, as passwords are checked a few at a time: each takes 64 MiB and a core, and the threads that answer
    everything else must stay free."""

    name = _counted_name(body.username)
    shown = body.client_mark or request.cookies.get(cookies.CLIENT, "")

    def log_in() -> LoginAnswer:
        token, user = master.identities.log_in(body.username, body.password, is_hashed=body.is_hashed, origin=origin)
        known = master.identities.known_mark(name, shown)
        kept = shown if known else master.identities.new_mark(name)
        return LoginAnswer(token=token, user=User.of(user), client_mark=kept)

    return await counted(request, master, body.username, log_in, shown)


async def counted(request: Request, master: ServedMaster, username: str, check: Callable[[], T], shown: str = "") -> T:
    """Run `check` on a password within the limits on attempts. `shown`: a mark of an earlier log-in, where
    there is one. Raises HTTPException 429, and what `check` raises for a wrong one."""
    name = _counted_name(username)
    address = request.client.host if request.client else ""
    mark = master.identities.known_mark(name, shown)
    if wait := master.guesses.begin(name, address, mark):
        seconds = math.ceil(wait)
        raise HTTPException(
            429,
            f"Too many attempts to log in have failed. Try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )

    try:
        known = master.guesses.knows(name, address, mark)
        async with master.password_checks.turn(name if known else addresses.network(address), known=known):
            answer = await run_in_threadpool(check)
    except (Busy, *DATABASE_UNAVAILABLE):
        master.guesses.withdrawn(name, address, mark)
        raise
    master.guesses.succeeded(name, address, mark)
    return answer


def _counted_name(username: str) -> str:
    return username.strip().lower()[:LONGEST_NAME] or "nobody"


@router.post("/auth/logout")
def logout(request: Request, master: UsesMaster, caller: UserCaller) -> dict[str, Any]:
    master.identities.log_out(bearer(request))
    return {}


@router.get("/auth/user")
def current_user(master: UsesMaster, caller: AnyCaller) -> UserAnswer:
    return UserAnswer(user=User.of(master.identities.get_user(caller.user_id)))


@router.get("/me")
def me(master: UsesMaster, caller: AnyCaller) -> UserAnswer:
    return UserAnswer(user=User.of(master.identities.get_user(caller.user_id)))
