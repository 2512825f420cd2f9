"""Streams users' files to clients piece by piece."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UserCaller, UsesMaster, own_allocation
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Forbidden
from trainmaster.master.services.files.archives import Key

router = APIRouter(tags=["files"])
SAVED = {"Content-Disposition": 'attachment; filename="context.tar.gz"'}  # no browser shows these files as a page


@router.get("/api/x1/allocations/{allocation_id}/context", response_class=StreamingResponse)
def of_allocation(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> StreamingResponse:
    """Return the files that the attempt works with, as a gzipped tar."""
    own_allocation(caller, allocation_id)
    key = master.context_archives.key_of_allocation(allocation_id)
    size = master.context_archives.size(key)
    headers = {"Content-Length": str(size), **SAVED}
    pieces = master.context_archives.pieces(key, size)
    return StreamingResponse(master.threads.pieces(caller, pieces), media_type="application/gzip", headers=headers)


@router.get("/api/v1/tasks/{task_id}/context_directory")
def of_task(task_id: str, master: UsesMaster, caller: AnyCaller) -> StreamingResponse:
    if caller.allocation_id is not None and caller.task_id != task_id:
        raise Forbidden(f"This token does not belong to the task {task_id}.")
    return _in_json(master, caller, master.context_archives.key_of_task(task_id))


@router.get("/api/v1/experiments/{experiment_id}/model_def")
def of_experiment(experiment_id: int, master: UsesMaster, caller: UserCaller) -> StreamingResponse:
    return _in_json(master, caller, experiment_id)


def _in_json(master: ServedMaster, caller: Caller, key: Key) -> StreamingResponse:
    """`{"b64Tgz": base64}`, as Determined answers."""
    size = master.context_archives.size(key)
    before, after = b'{"b64Tgz":"', b'"}'

    def parts() -> Iterator[bytes]:
        yield before
        for piece in master.context_archives.pieces(key, size):
            yield base64.b64encode(piece)
        yield after

    length = len(before) + (size + 2) // 3 * 4 + len(after)
    headers = {"Content-Length": str(length)}
    return StreamingResponse(master.threads.pieces(caller, parts()), media_type="application/json", headers=headers)
