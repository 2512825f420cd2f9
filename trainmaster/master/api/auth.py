"""Endpoints to log in, log out and show the current user."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from trainmaster.master.api import cookies
from trainmaster.master.api.dependencies import AnyCaller, Services, UserCaller, UsesServices, bearer
from trainmaster.master.api.shapes import Body, Shape, User
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.services import addresses
from trainmaster.master.services.access import identity
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
async def login(request: Request, body: LoginRequest, services: UsesServices) -> LoginAnswer:
    return await enter(request, body, services)


async def enter(request: Request, body: LoginRequest, services: Services, *, origin: str = "") -> LoginAnswer:
    """Starts a session. `origin`: of the web page on which the password was typed; empty for programs.

    A coroutine, as passwords are checked a few at a time: each takes 64 MiB and a core, and the threads that answer
    everything else must stay free."""

    name = _counted_name(body.username)
    shown = body.client_mark or request.cookies.get(cookies.CLIENT, "")

    def log_in() -> LoginAnswer:
        token, user = identity.log_in(
            services.store, body.username, body.password, is_hashed=body.is_hashed, origin=origin
        )
        known = identity.known_mark(services.settings, name, shown)
        kept = shown if known else identity.new_mark(services.settings, name)
        return LoginAnswer(token=token, user=User.of(user), client_mark=kept)

    return await counted(request, services, body.username, log_in, shown)


async def counted(request: Request, services: Services, username: str, check: Callable[[], T], shown: str = "") -> T:
    """Runs `check` on a password within the limits on attempts. `shown`: a mark of an earlier log-in, where
    there is one. Raises HTTPException 429, and what `check` raises for a wrong one."""
    name = _counted_name(username)
    address = request.client.host if request.client else ""
    mark = identity.known_mark(services.settings, name, shown)
    if wait := services.guesses.begin(name, address, mark):
        seconds = math.ceil(wait)
        raise HTTPException(
            429,
            f"Too many attempts to log in have failed. Try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )

    try:
        known = services.guesses.knows(name, address, mark)
        async with services.password_checks.turn(name if known else addresses.network(address), known=known):
            answer = await run_in_threadpool(check)
    except (Busy, *DATABASE_UNAVAILABLE):
        services.guesses.withdrawn(name, address, mark)
        raise
    services.guesses.succeeded(name, address, mark)
    return answer


def _counted_name(username: str) -> str:
    return username.strip().lower()[:LONGEST_NAME] or "nobody"


@router.post("/auth/logout")
def logout(request: Request, services: UsesServices, caller: UserCaller) -> dict[str, Any]:
    identity.log_out(services.store, bearer(request))
    return {}


@router.get("/auth/user")
def current_user(services: UsesServices, caller: AnyCaller) -> UserAnswer:
    return UserAnswer(user=User.of(identity.get_user(services.store, caller.user_id)))


@router.get("/me")
def me(services: UsesServices, caller: AnyCaller) -> UserAnswer:
    return UserAnswer(user=User.of(identity.get_user(services.store, caller.user_id)))
