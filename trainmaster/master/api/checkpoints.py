"""Endpoints for existing checkpoints: get them, change their metadata, remove their files."""

from __future__ import annotations

from fastapi import APIRouter

from trainmaster.master.api.schemas.entities import Checkpoint
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.errors import Invalid
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1/checkpoints", tags=["checkpoints"])


class CheckpointAnswer(Shape):
    checkpoint: Checkpoint


class DeleteCheckpoints(Body):
    checkpoint_uuids: list[str]


class RemoveFiles(Body):
    checkpoint_uuids: list[str]
    checkpoint_globs: list[str] = []  # noqa: RUF012


class PostMetadata(Body):
    checkpoint: Json


@router.delete("")
def delete(body: DeleteCheckpoints, master: UsesMaster, caller: UserCaller) -> Json:
    """Delete checkpoints: their files are removed soon; lists still show them as deleted."""
    master.checkpoints.remove(caller, body.checkpoint_uuids)
    return {}


@router.post("/rm")
def remove_files(body: RemoveFiles, master: UsesMaster, caller: UserCaller) -> Json:
    """Remove files that match; without patterns the lists of files are read again."""
    master.checkpoints.remove(caller, body.checkpoint_uuids, body.checkpoint_globs)
    return {}


@router.post("/{checkpoint_uuid}/metadata")
def set_metadata(checkpoint_uuid: str, body: PostMetadata, master: UsesMaster, caller: UserCaller) -> CheckpointAnswer:
    metadata = body.checkpoint.get("metadata")
    if not isinstance(metadata, dict):
        raise Invalid("checkpoint.metadata must be a JSON object.")
    master.checkpoints.set_metadata(caller, checkpoint_uuid, metadata)
    view = master.trials.get_checkpoint(checkpoint_uuid)
    return CheckpointAnswer(checkpoint=Checkpoint.of(view.row, view.trial, view.config))
