"""Logging in and out, and who one is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from trainmaster.master.api.dependencies import AnyCaller, Services, UserCaller, UsesServices, bearer
from trainmaster.master.api.shapes import Body, Shape, User
from trainmaster.master.db.presence import AWAY
from trainmaster.master.services import identity

router = APIRouter(prefix="/api/v1", tags=["auth"])
T = TypeVar("T")
LONGEST_NAME = 100  # characters of a name that are told apart; users' names have 80 at most


class LoginRequest(Body):
    username: str
    password: str
    is_hashed: bool = False


class LoginAnswer(Shape):
    token: str
    user: User


class UserAnswer(Shape):
    user: User


@router.post("/auth/login")
async def login(request: Request, body: LoginRequest, services: UsesServices) -> LoginAnswer:
    return await enter(request, body, services)


async def enter(request: Request, body: LoginRequest, services: Services, *, origin: str = "") -> LoginAnswer:
    """A new session. `origin`: of the page on which the password was typed, where that is a browser's.

    A coroutine, as passwords are checked a few at a time: each takes 64 MiB and a core, and the threads that answer
    everything else must stay free."""

    def log_in() -> LoginAnswer:
        token, user = identity.log_in(
            services.store, body.username, body.password, is_hashed=body.is_hashed, origin=origin
        )
        return LoginAnswer(token=token, user=User.of(user))

    return await counted(request, services, body.username, log_in)


async def counted(request: Request, services: Services, username: str, check: Callable[[], T]) -> T:
    """What `check` says of a password, as far as whoever asks may try one. Raises HTTPException 429, and what `check`
    raises for a wrong one."""
    name = username.strip().lower()[:LONGEST_NAME] or "nobody"
    address = request.client.host if request.client else ""
    if wait := services.guesses.begin(name, address):
        seconds = math.ceil(wait)
        raise HTTPException(
            429,
            f"Too many attempts to log in have failed. Try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )

    try:
        async with services.password_checks:
            answer = await run_in_threadpool(check)
    except AWAY:
        services.guesses.withdrawn(name, address)
        raise
    services.guesses.succeeded(name, address)
    return answer


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
