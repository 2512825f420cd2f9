"""Commands, notebooks, shells and TensorBoards: this version starts none, and so lists none."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.shapes import Pagination
from trainmaster.master.services.paging import cut

router = APIRouter(prefix="/api/v1", tags=["tasks"])
Json = dict[str, Any]


def _none(key: str, offset: int, limit: int) -> Json:
    return {key: [], "pagination": Pagination.of(cut(offset, limit, 0)).model_dump(by_alias=True)}


@router.get("/commands")
def commands(services: UsesServices, caller: UserCaller, offset: int = 0, limit: int = 0) -> Json:
    return _none("commands", offset, limit)


@router.get("/notebooks")
def notebooks(services: UsesServices, caller: UserCaller, offset: int = 0, limit: int = 0) -> Json:
    return _none("notebooks", offset, limit)


@router.get("/shells")
def shells(services: UsesServices, caller: UserCaller, offset: int = 0, limit: int = 0) -> Json:
    return _none("shells", offset, limit)


@router.get("/tensorboards")
def tensorboards(services: UsesServices, caller: UserCaller, offset: int = 0, limit: int = 0) -> Json:
    return _none("tensorboards", offset, limit)
