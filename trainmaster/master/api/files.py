"""Streams users' files to clients piece by piece."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from trainmaster.master.api.dependencies import AnyCaller, Services, UserCaller, UsesServices, own_allocation
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Forbidden
from trainmaster.master.services.files import archives
from trainmaster.master.services.files.archives import Key
from trainmaster.master.services.store import Store

router = APIRouter(tags=["files"])
SAVED = {"Content-Disposition": 'attachment; filename="context.tar.gz"'}  # no browser shows these files as a page


@router.get("/api/x1/allocations/{allocation_id}/context", response_class=StreamingResponse)
def of_allocation(allocation_id: str, services: UsesServices, caller: AnyCaller) -> StreamingResponse:
    """The files that the attempt works with, as a gzipped tar."""
    own_allocation(caller, allocation_id)
    key = archives.key_of_allocation(services.store, allocation_id)
    size = _size(services.store, key)
    headers = {"Content-Length": str(size), **SAVED}
    pieces = archives.pieces(services.store, key, size)
    return StreamingResponse(services.threads.pieces(caller, pieces), media_type="application/gzip", headers=headers)


@router.get("/api/v1/tasks/{task_id}/context_directory")
def of_task(task_id: str, services: UsesServices, caller: AnyCaller) -> StreamingResponse:
    if caller.allocation_id is not None and caller.task_id != task_id:
        raise Forbidden(f"This token does not belong to the task {task_id}.")
    return _in_json(services, caller, archives.key_of_task(services.store, task_id))


@router.get("/api/v1/experiments/{experiment_id}/model_def")
def of_experiment(experiment_id: int, services: UsesServices, caller: UserCaller) -> StreamingResponse:
    return _in_json(services, caller, experiment_id)


def _in_json(services: Services, caller: Caller, key: Key) -> StreamingResponse:
    """`{"b64Tgz": base64}`, as Determined answers."""
    size = _size(services.store, key)
    before, after = b'{"b64Tgz":"', b'"}'

    def parts() -> Iterator[bytes]:
        yield before
        for piece in archives.pieces(services.store, key, size):
            yield base64.b64encode(piece)
        yield after

    length = len(before) + (size + 2) // 3 * 4 + len(after)
    headers = {"Content-Length": str(length)}
    return StreamingResponse(services.threads.pieces(caller, parts()), media_type="application/json", headers=headers)


def _size(store: Store, key: Key) -> int:
    with store.autocommit() as session:
        return archives.size(session, key)
