"""Endpoints for users, their settings and their access tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from trainmaster.master.api.passwords import UserAnswer, refuse_pages
from trainmaster.master.api.schemas.entities import Pagination, User
from trainmaster.master.db.tables import UserSession
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import UserCaller, UsesMaster, bearer
from trainmaster.master.http.messages import Body, Shape, Time
from trainmaster.master.http.parameters import Descending, sort_key
from trainmaster.master.services.access import tokens, users
from trainmaster.master.services.access.accounts import Account
from trainmaster.master.services.access.tokens import TokenQuery
from trainmaster.master.services.access.users import Password, UserChange, UserQuery
from trainmaster.master.services.errors import Invalid
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["users"])


class UsersAnswer(Shape):
    users: list[User]
    pagination: Pagination


class AgentUserGroup(Body):
    """All four, as `det user link-with-agent-user` sends them."""

    agent_uid: int
    agent_user: str
    agent_gid: int
    agent_group: str

    def account(self) -> Account:
        return Account(self.agent_uid, self.agent_user, self.agent_gid, self.agent_group)


class PatchUser(Body):
    username: str | None = None
    display_name: str | None = None
    admin: bool | None = None
    active: bool | None = None
    remote: bool | None = None
    password: str | None = None
    is_hashed: bool = False
    agent_user_group: AgentUserGroup | None = None

    def change(self) -> UserChange:
        return UserChange(
            self.username,
            self.display_name,
            self.admin,
            self.active,
            self.remote,
            Password(self.password, self.is_hashed) if self.password is not None else None,
            self.agent_user_group.account() if self.agent_user_group else None,
        )


class NewUser(Body):
    """The fields of a user's shape; those that the master decides itself are accepted and ignored."""

    username: str
    admin: bool = False
    active: bool = True
    remote: bool = False
    display_name: str | None = None
    agent_user_group: AgentUserGroup | None = None
    id: int | None = None
    modified_at: str | None = None
    last_auth_at: str | None = None


class PostUser(Body):
    user: NewUser
    password: str | None = None
    is_hashed: bool = False


class UserFilters(Body):
    name: str = ""
    admin: bool | None = None


class PatchUsers(Body):
    """With filters: all matching users but the caller, instead of the listed ones."""

    user_ids: list[int] = []  # noqa: RUF012
    activate: bool
    filters: UserFilters | None = None


class Outcome(Shape):
    id: int
    error: str


class OutcomesAnswer(Shape):
    results: list[Outcome]


@router.get("/users")
def list_users(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_UNSPECIFIED",
    name: str = "",
    active: bool | None = None,
    admin: bool | None = None,
    role_ids: Annotated[list[int], Query(alias="roleIdAssignedDirectlyToUser")] = [],  # noqa: B006
) -> UsersAnswer:
    key = sort_key(sort_by, users.SORTS, "id", enums.USERS)
    query = UserQuery(name, active, admin, role_ids, key, bool(descending))
    page = master.users.list_page(query, offset, limit)
    return UsersAnswer(users=[User.of(row) for row in page.items], pagination=Pagination.of(page.window))


@router.post("/users")
def create(body: PostUser, master: UsesMaster, caller: UserCaller) -> UserAnswer:
    new = body.user
    change = UserChange(
        new.username,
        new.display_name,
        new.admin,
        new.active,
        new.remote,
        Password(body.password, body.is_hashed) if body.password is not None else None,
        new.agent_user_group.account() if new.agent_user_group else None,
    )
    return UserAnswer(user=User.of(master.users.create(caller, change)))


@router.patch("/users")
def activate(body: PatchUsers, master: UsesMaster, caller: UserCaller) -> OutcomesAnswer:
    """Activate or deactivate many."""
    chosen = body.user_ids
    if body.filters is not None:
        page = master.users.list_page(UserQuery(body.filters.name, admin=body.filters.admin), 0, 0)
        chosen = [row.id for row in page.items if row.id != caller.user_id]
    users = master.users.set_active(caller, chosen, body.activate)
    return OutcomesAnswer(results=[Outcome(id=user_id, error=error) for user_id, error in users])


# -- settings -----------------------------------------------------------------------------------------------------


class Setting(Body):
    key: str
    value: str = ""
    storage_path: str = ""


class PostSettings(Body):
    settings: list[Setting]


@router.get("/users/setting")
def settings(master: UsesMaster, caller: UserCaller) -> Json:
    rows = master.users.settings(caller.user_id)
    return {"settings": [{"key": row.key, "value": row.value, "storagePath": row.storage_path} for row in rows]}


@router.post("/users/setting")
def set_settings(body: PostSettings, master: UsesMaster, caller: UserCaller) -> Json:
    wanted = [(setting.storage_path, setting.key, setting.value) for setting in body.settings]
    master.users.set_settings(caller.user_id, wanted)
    return {}


@router.post("/users/setting/reset")
def reset_settings(master: UsesMaster, caller: UserCaller) -> Json:
    master.users.reset_settings(caller.user_id)
    return {}


class Activity(Body):
    activity_type: str
    entity_type: str
    entity_id: int


@router.post("/users/activity")
def note_activity(body: Activity, master: UsesMaster, caller: UserCaller) -> Json:
    """Accept and ignore: this master keeps no list of recently viewed projects."""
    return {}


class Regroup(Body):
    user_ids: list[int]
    add_groups: list[int] = []  # noqa: RUF012
    remove_groups: list[int] = []  # noqa: RUF012


@router.patch("/users/assignments")
def regroup(body: Regroup, master: UsesMaster, caller: UserCaller) -> Json:
    master.groups.regroup(caller, body.user_ids, body.add_groups, body.remove_groups)
    return {}


# -- one ----------------------------------------------------------------------------------------------------------


@router.get("/users/{username}/by-username")
def get_by_name(username: str, master: UsesMaster, caller: UserCaller) -> UserAnswer:
    return UserAnswer(user=User.of(master.identities.get_user_by_name(username)))


@router.get("/users/{user_id}")
def get(user_id: int, master: UsesMaster, caller: UserCaller) -> UserAnswer:
    return UserAnswer(user=User.of(master.identities.get_user(user_id)))


@router.patch("/users/{user_id}")
def patch(user_id: int, body: PatchUser, request: Request, master: UsesMaster, caller: UserCaller) -> UserAnswer:
    """Users change their own password and display name, administrators everything."""
    if body.password is not None:
        refuse_pages(request)
    row = master.users.patch(caller, user_id, body.change(), token=bearer(request))
    return UserAnswer(user=User.of(row))


@router.post("/users/{user_id}/password")
async def set_password(user_id: int, request: Request, master: UsesMaster, caller: UserCaller) -> UserAnswer:
    """Return the body is the password, a JSON text, hashed the way Determined's clients do."""
    refuse_pages(request)
    try:
        text = await request.json()
    except ValueError:
        text = None
    if not isinstance(text, str):
        raise Invalid("The body must be the new password, as a JSON string.")
    change = UserChange(password=Password(text, True))
    row = await master.threads.run(caller, master.users.patch, caller, user_id, change, token=bearer(request))
    return UserAnswer(user=User.of(row))


# -- access tokens ------------------------------------------------------------------------------------------------


class TokenInfo(Shape):
    id: int
    user_id: int
    created_at: Time
    expiry: Time
    description: str
    revoked: bool
    token_type: str

    @classmethod
    def of(cls, row: UserSession) -> TokenInfo:
        return cls(
            id=row.id,
            user_id=row.user_id,
            created_at=row.created_at,
            expiry=row.expires_at,
            description=row.description,
            revoked=row.revoked,
            token_type=f"TOKEN_TYPE_{row.kind}",
        )


class TokensAnswer(Shape):
    token_info: list[TokenInfo]
    pagination: Pagination


class PostToken(Body):
    user_id: int
    lifespan: str | None = Field(None, description="hours, such as 48h; -1 for ever")
    description: str = ""


class PatchToken(Body):
    token_id: int | None = None
    description: str | None = None
    set_revoked: bool = False


class NewTokenAnswer(Shape):
    token: str
    token_id: int


class TokenAnswer(Shape):
    token_info: TokenInfo


@router.get("/tokens", tags=["tokens"])
def list_tokens(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_UNSPECIFIED",
    ids: Annotated[list[int], Query(alias="tokenIds")] = [],  # noqa: B006
    username: str = "",
    inactive: Annotated[bool, Query(alias="showInactive")] = False,
) -> TokensAnswer:
    key = sort_key(sort_by, tokens.SORTS, "created_at", enums.TOKENS)
    query = TokenQuery(ids, username, inactive, key, bool(descending))
    page = master.tokens.list_page(caller, query, offset, limit)
    return TokensAnswer(token_info=[TokenInfo.of(row) for row in page.items], pagination=Pagination.of(page.window))


@router.post("/tokens", tags=["tokens"])
def create_token(body: PostToken, master: UsesMaster, caller: UserCaller) -> NewTokenAnswer:
    token, number = master.tokens.create(caller, body.user_id, body.lifespan, body.description)
    return NewTokenAnswer(token=token, token_id=number)


@router.patch("/tokens/{token_id}", tags=["tokens"])
def patch_token(token_id: int, body: PatchToken, master: UsesMaster, caller: UserCaller) -> TokenAnswer:
    row = master.tokens.patch(caller, token_id, body.description, body.set_revoked)
    return TokenAnswer(token_info=TokenInfo.of(row))
