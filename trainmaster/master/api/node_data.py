"""The endpoint by which jobs get the files of their experiment's data from its object store."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import AnyCaller, UsesMaster, own_allocation
from trainmaster.master.http.messages import Shape

router = APIRouter(prefix="/api/x1", tags=["allocations"])


class DataFile(Shape):
    """`modified`: seconds since 1970; `sha256` is empty: nobody has said it."""

    path: str
    size: int
    modified: float
    sha256: str = ""
    url: str
    headers: dict[str, str]


class DataFiles(Shape):
    files: list[DataFile]
    folders: list[str] = []  # noqa: RUF012 - a store has none
    after: str
    authority: str


@router.get("/allocations/{allocation_id}/data/{name}")
def files(
    allocation_id: str,
    name: str,
    master: UsesMaster,
    caller: AnyCaller,
    after: Annotated[str, Query(max_length=4096)] = "",
    path: Annotated[str, Query(max_length=4096)] = "",
) -> DataFiles:
    """List an item's files with addresses that anybody may read for an hour: all, those that come `after` a path, or
    the one of a `path`."""
    own_allocation(caller, allocation_id)
    found = master.node_data_files.sign(allocation_id, name, after, path)
    shown = [
        DataFile(
            path=file.path, size=file.size, modified=file.modified, url=file.get.url, headers=dict(file.get.headers)
        )
        for file in found.files
    ]
    return DataFiles(files=shown, after=found.after, authority=found.authority)
