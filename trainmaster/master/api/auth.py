"""Logging in and out, and who one is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from trainmaster.master.api.dependencies import AnyCaller, UserCaller, UsesServices, bearer
from trainmaster.master.api.shapes import Body, Shape, User
from trainmaster.master.services import identity

router = APIRouter(prefix="/api/v1", tags=["auth"])


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
def login(body: LoginRequest, services: UsesServices) -> LoginAnswer:
    token, user = identity.log_in(services.store, body.username, body.password, is_hashed=body.is_hashed)
    return LoginAnswer(token=token, user=User.of(user))


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
