"""The endpoint that says who keeps how much in checkpoint storage."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.views.storage_usage import Grouping

router = APIRouter(prefix="/api/x1", tags=["cluster"])


class StorageShare(Shape):
    """`size` in bytes. `owner` and `workspace` are of an experiment."""

    id: int
    name: str
    owner: str
    workspace: str
    checkpoints: int
    size: int


class StorageUsage(Shape):
    """The largest shares first, and the site's own storage; `free` and `total` are bytes, null where nobody says it."""

    shares: list[StorageShare]
    place: str
    free: int | None
    total: int | None


@router.get("/storage/usage")
def storage_usage(
    master: UsesMaster,
    caller: UserCaller,
    by: Grouping = "experiment",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StorageUsage:
    """List who keeps how many bytes of checkpoints, in the workspaces that the caller may see."""
    found = [StorageShare(**vars(share)) for share in master.storage_usage.shares(by, caller.workspaces, limit)]
    site = master.storage_usage.site()
    return StorageUsage(shares=found, place=site.place, free=site.free, total=site.total)
