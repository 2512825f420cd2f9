"""The endpoint behind the first page: what needs its user, what runs, what waits and why."""

from __future__ import annotations

from fastapi import APIRouter

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.view_shapes import HomeAnswer
from trainmaster.master.services.errors import NotServed

router = APIRouter(prefix="/api/x1", tags=["home"])


@router.get("/home")
def home(services: UsesServices, caller: UserCaller) -> HomeAnswer:
    raise NotServed("to be written")
