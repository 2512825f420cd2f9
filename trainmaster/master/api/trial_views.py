"""Endpoints behind the page of a trial."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.view_shapes import AttemptsAnswer, TrialBoard, TrialCurves
from trainmaster.master.services.errors import NotServed

router = APIRouter(prefix="/api/x1", tags=["trials"])


@router.get("/trials/{trial_id}/board")
def board(trial_id: int, services: UsesServices, caller: UserCaller) -> TrialBoard:
    raise NotServed("to be written")


@router.get("/trials/{trial_id}/attempts")
def attempts(trial_id: int, services: UsesServices, caller: UserCaller) -> AttemptsAnswer:
    raise NotServed("to be written")


@router.get("/trials/{trial_id}/curves")
def curves(
    trial_id: int,
    services: UsesServices,
    caller: UserCaller,
    metrics: str = "",
    x: str = "",
    points: Annotated[int, Query(ge=2, le=5000)] = 500,
) -> TrialCurves:
    raise NotServed("to be written")
