"""The endpoint behind the page of a log: a window of a log of any length."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.view_shapes import LogWindow
from trainmaster.master.services.errors import NotServed

router = APIRouter(prefix="/api/x1", tags=["tasks"])


@router.get("/tasks/{task_id}/log")
def log_window(
    task_id: str,
    services: UsesServices,
    caller: UserCaller,
    around: str = "end",
    count: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> LogWindow:
    raise NotServed("to be written")
