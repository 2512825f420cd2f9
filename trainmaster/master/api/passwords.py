"""Endpoints to change a password, for web pages and for our `det`. The present password is required."""

from __future__ import annotations

from fastapi import APIRouter, Request

from trainmaster.master.api.auth import counted
from trainmaster.master.api.schemas.entities import User
from trainmaster.master.http.dependencies import UserCaller, UsesMaster, bearer, in_header
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.access.users import Password, UserChange
from trainmaster.master.services.errors import Forbidden

router = APIRouter(prefix="/api/x1", tags=["users"])


class UserAnswer(Shape):
    user: User


class NewPassword(Body):
    """`current_password`: the caller's own, hashed like the new one."""

    password: str
    is_hashed: bool = False
    current_password: str | None = None
    end_access_tokens: bool = False


@router.post("/users/{user_id}/password")
async def change_password(
    user_id: int, body: NewPassword, request: Request, master: UsesMaster, caller: UserCaller
) -> UserAnswer:
    """Set a password. A page must send its user's present one. The user's other sessions end, with
    `endAccessTokens` the access tokens too."""
    if body.current_password is None:
        refuse_pages(request)
    else:
        present = body.current_password

        def check() -> None:
            master.identities.check_password(caller.user_id, present, is_hashed=body.is_hashed)

        await counted(request, master, caller.username, check)
    change = UserChange(password=Password(body.password, body.is_hashed), end_tokens=body.end_access_tokens)
    row = await master.threads.run(caller, master.users.patch, caller, user_id, change, token=bearer(request))
    return UserAnswer(user=User.of(row))


def refuse_pages(request: Request) -> None:
    """Raise Forbidden for a page: somebody who finds a browser unlocked must not take over the account."""
    if not in_header(request):
        raise Forbidden(
            "A page sets a password with POST /api/x1/users/ID/password, and its user's present one in currentPassword."
        )
