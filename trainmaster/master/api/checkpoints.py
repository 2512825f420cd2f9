"""Endpoints for existing checkpoints: get them, change their metadata, remove their files."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from trainmaster.master.api.dependencies import UserCaller, UsesServices
from trainmaster.master.api.shapes import Body, Checkpoint, Shape
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import trials
from trainmaster.master.services.removal import checkpoints

router = APIRouter(prefix="/api/v1/checkpoints", tags=["checkpoints"])
Json = dict[str, Any]


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
def delete(body: DeleteCheckpoints, services: UsesServices, caller: UserCaller) -> Json:
    """Deletes checkpoints: their files are removed soon; lists still show them as deleted."""
    checkpoints.remove(services.store, services.settings, caller, body.checkpoint_uuids)
    return {}


@router.post("/rm")
def remove_files(body: RemoveFiles, services: UsesServices, caller: UserCaller) -> Json:
    """Removes files that match; without patterns the lists of files are read again."""
    checkpoints.remove(services.store, services.settings, caller, body.checkpoint_uuids, body.checkpoint_globs)
    return {}


@router.post("/{checkpoint_uuid}/metadata")
def set_metadata(
    checkpoint_uuid: str, body: PostMetadata, services: UsesServices, caller: UserCaller
) -> CheckpointAnswer:
    metadata = body.checkpoint.get("metadata")
    if not isinstance(metadata, dict):
        raise Invalid("checkpoint.metadata must be a JSON object.")
    checkpoints.set_metadata(services.store, caller, checkpoint_uuid, metadata)
    view = trials.get_checkpoint(services.store, checkpoint_uuid)
    return CheckpointAnswer(checkpoint=Checkpoint.of(view.row, view.trial, view.config))
