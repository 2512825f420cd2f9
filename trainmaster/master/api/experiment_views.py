"""Endpoints behind the page of an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.view_shapes import Curves, ExperimentBoard, StoryAnswer
from trainmaster.master.services.errors import NotServed

router = APIRouter(prefix="/api/x1", tags=["experiments"])


@router.get("/experiments/{experiment_id}/board")
def board(
    experiment_id: int,
    services: UsesServices,
    caller: UserCaller,
    curves: bool = False,
    metric: str = "",
    group: str = "validation",
    x: str = "",
    points: Annotated[int, Query(ge=2, le=1000)] = 200,
) -> ExperimentBoard:
    raise NotServed("to be written")


@router.get("/experiments/{experiment_id}/curves")
def curves(
    experiment_id: int,
    services: UsesServices,
    caller: UserCaller,
    metric: str = "",
    group: str = "validation",
    x: str = "",
    points: Annotated[int, Query(ge=2, le=1000)] = 200,
    since: Annotated[int, Query(ge=0)] = 0,
) -> Curves:
    raise NotServed("to be written")


@router.get("/experiments/{experiment_id}/story")
def story(
    experiment_id: int,
    services: UsesServices,
    caller: UserCaller,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 2000,
) -> StoryAnswer:
    raise NotServed("to be written")
