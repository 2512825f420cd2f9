"""Logging in and out, and who one is."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from trainmaster.master.api.dependencies import AnyCaller, UserCaller, UsesServices, bearer
from trainmaster.master.api.shapes import Body, Shape, User
from trainmaster.master.db.presence import AWAY
from trainmaster.master.services import identity

router = APIRouter(prefix="/api/v1", tags=["auth"])
MARK_COOKIE = "trainmaster-client"  # where browsers keep what tells them from guessers at the same address
LONGEST_NAME = 100  # characters of a name that are told apart; users' names have 80 at most


class LoginRequest(Body):
    username: str
    password: str
    is_hashed: bool = False
    client_mark: Annotated[str, Field(max_length=200)] = ""  # ours: what an earlier log-in of this client was given


class LoginAnswer(Shape):
    token: str
    user: User
    client_mark: str  # ours: to be kept by the client, and shown when this user logs in again


class UserAnswer(Shape):
    user: User


@router.post("/auth/login")
async def login(request: Request, body: LoginRequest, services: UsesServices) -> LoginAnswer:
    """A coroutine, as passwords are checked a few at a time: each takes 64 MiB and a core, and the threads that answer
    everything else must stay free."""
    name = body.username.strip().lower()[:LONGEST_NAME] or "nobody"
    address = request.client.host if request.client else ""
    shown = body.client_mark or request.cookies.get(MARK_COOKIE, "")
    mark = identity.known_mark(services.settings, name, shown)
    if wait := services.guesses.begin(name, address, mark):
        seconds = math.ceil(wait)
        raise HTTPException(
            429,
            f"Too many attempts to log in have failed. Try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )

    def log_in() -> LoginAnswer:
        token, user = identity.log_in(services.store, body.username, body.password, is_hashed=body.is_hashed)
        kept = shown if mark else identity.new_mark(services.settings, name)
        return LoginAnswer(token=token, user=User.of(user), client_mark=kept)

    try:
        async with services.password_checks:
            answer = await run_in_threadpool(log_in)
    except AWAY:
        services.guesses.withdrawn(name, address, mark)
        raise
    services.guesses.succeeded(name, address, mark)
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
