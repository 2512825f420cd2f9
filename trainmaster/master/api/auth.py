"""Logging in and out, and who one is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from trainmaster.master.api.dependencies import AnyCaller, UserCaller, UsesServices, bearer
from trainmaster.master.api.shapes import Body, Pagination, Shape, User
from trainmaster.master.services import accounts, identity, paging
from trainmaster.master.services.errors import Forbidden

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


class UsersAnswer(Shape):
    users: list[User]
    pagination: Pagination


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


@router.get("/users")
def users(services: UsesServices, caller: UserCaller, offset: int = 0, limit: int = 0) -> UsersAnswer:
    rows = identity.list_users(services.store)
    window = paging.cut(offset, limit, len(rows))
    shown = [User.of(row) for row in rows[window.start : window.end]]
    return UsersAnswer(users=shown, pagination=Pagination.of(window))


@router.get("/users/{username}/by-username")
def user_by_name(username: str, services: UsesServices, caller: UserCaller) -> UserAnswer:
    return UserAnswer(user=User.of(identity.get_user_by_name(services.store, username)))


@router.get("/users/{user_id}")
def user(user_id: int, services: UsesServices, caller: UserCaller) -> UserAnswer:
    return UserAnswer(user=User.of(identity.get_user(services.store, user_id)))


class AgentUserGroup(Body):
    """All four, as `det user link-with-agent-user` sends them."""

    agent_uid: int
    agent_user: str
    agent_gid: int
    agent_group: str


class PatchUser(Body):
    agent_user_group: AgentUserGroup


@router.patch("/users/{user_id}")
def patch_user(user_id: int, body: PatchUser, services: UsesServices, caller: UserCaller) -> UserAnswer:
    """Say which Unix account the jobs of a user run as."""
    if not caller.admin:
        raise Forbidden("Only an administrator can link users to accounts of the cluster.")
    wanted = body.agent_user_group
    account = accounts.Account(wanted.agent_uid, wanted.agent_user, wanted.agent_gid, wanted.agent_group)
    return UserAnswer(user=User.of(accounts.link(services.store, user_id, account)))
