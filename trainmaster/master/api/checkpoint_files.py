"""Download of a checkpoint's files for users who cannot reach its storage. Outside of `/api/v1`, as in Determined."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.services.removal import checkpoint_files
from trainmaster.master.services.removal.checkpoint_files import Form

router = APIRouter(tags=["checkpoints"])
FORMS: dict[str, Form] = {"application/gzip": "tgz", "application/x-tar": "tar", "application/zip": "zip"}
ENDINGS: dict[Form, str] = {"tgz": "tar.gz", "tar": "tar", "zip": "zip"}


@router.get("/checkpoints/{checkpoint_uuid}", response_class=StreamingResponse)
def download(
    checkpoint_uuid: str, master: UsesMaster, caller: UserCaller, accept: Annotated[str, Header()] = "*/*"
) -> StreamingResponse:
    """As an archive: a gzipped tar, or what `Accept` asks for of application/gzip, application/x-tar and
    application/zip."""
    asked = [entry.partition(";")[0].strip() for entry in accept.split(",")]
    kind = next((kind for kind in asked if kind in FORMS), "application/gzip")
    folder = master.checkpoint_archives.open_folder(checkpoint_uuid)
    name = f"{checkpoint_uuid}.{ENDINGS[FORMS[kind]]}"
    saved = {"Content-Disposition": f'attachment; filename="{name}"'}
    pieces = checkpoint_files.archive(folder, FORMS[kind])
    return StreamingResponse(master.threads.pieces(caller, pieces), media_type=kind, headers=saved)
