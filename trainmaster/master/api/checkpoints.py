"""Endpoints for checkpoints: download, metadata, removal of files, and the tables of the web page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse

from trainmaster.master.api.schemas.entities import Checkpoint, Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.parameters import CheckpointStates, Descending, sort_key
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments import trials
from trainmaster.master.services.paging import Page
from trainmaster.master.services.removal import checkpoint_files
from trainmaster.master.services.removal.checkpoint_files import Form
from trainmaster.master.services.views import checkpoint_table
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["checkpoints"])


class CheckpointAnswer(Shape):
    checkpoint: Checkpoint


class CheckpointsAnswer(Shape):
    checkpoints: list[Checkpoint]
    pagination: Pagination


def _list_options(
    descending: Descending,
    states: CheckpointStates,
    offset: int = 0,
    limit: int = 0,
    sort_by_attr: Annotated[str, Query(alias="sortByAttr")] = "SORT_BY_END_TIME",
    sort_by_metric: Annotated[str, Query(alias="sortByMetric", max_length=1000)] = "",
) -> Json:
    return {
        "states": states,
        "sort_by": sort_key(sort_by_attr, trials.CHECKPOINT_SORTS, "end_time", enums.CHECKPOINTS),
        "metric": sort_by_metric,
        "descending": descending,
        "offset": offset,
        "limit": limit,
    }


ListOptions = Annotated[Json, Depends(_list_options)]


class DeleteCheckpoints(Body):
    checkpoint_uuids: list[str]


class RemoveFiles(Body):
    checkpoint_uuids: list[str]
    checkpoint_globs: list[str] = []  # noqa: RUF012


class PinCheckpoints(Body):
    checkpoint_uuids: list[str]
    pinned: bool


class PostMetadata(Body):
    checkpoint: Json


@router.get("/api/v1/experiments/{experiment_id}/checkpoints")
def list_checkpoints(
    experiment_id: int, master: UsesMaster, caller: UserCaller, options: ListOptions
) -> CheckpointsAnswer:
    return _page(master.trials.list_checkpoints(experiment_id=experiment_id, **options))


@router.get("/api/v1/trials/{trial_id}/checkpoints", tags=["trials"])
def checkpoints(trial_id: int, master: UsesMaster, caller: UserCaller, options: ListOptions) -> CheckpointsAnswer:
    return _page(master.trials.list_checkpoints(trial_id=trial_id, **options))


def _page(page: Page[trials.CheckpointView]) -> CheckpointsAnswer:
    shown = [Checkpoint.of(view.row, view.trial, view.config) for view in page.items]
    return CheckpointsAnswer(checkpoints=shown, pagination=Pagination.of(page.window))


@router.get("/api/v1/checkpoints/{uuid}")
def checkpoint(uuid: str, master: UsesMaster, caller: AnyCaller) -> CheckpointAnswer:
    view = master.trials.get_checkpoint(uuid)
    return CheckpointAnswer(checkpoint=Checkpoint.of(view.row, view.trial, view.config))


@router.delete("/api/v1/checkpoints")
def delete(body: DeleteCheckpoints, master: UsesMaster, caller: UserCaller) -> Json:
    """Delete checkpoints: their files are removed soon; lists still show them as deleted."""
    master.checkpoints.remove(caller, body.checkpoint_uuids)
    return {}


@router.post("/api/v1/checkpoints/rm")
def remove_files(body: RemoveFiles, master: UsesMaster, caller: UserCaller) -> Json:
    """Remove files that match; without patterns the lists of files are read again."""
    master.checkpoints.remove(caller, body.checkpoint_uuids, body.checkpoint_globs)
    return {}


@router.post("/api/x1/checkpoints/pins")
def pin(body: PinCheckpoints, master: UsesMaster, caller: UserCaller) -> Json:
    """Keep checkpoints whatever a policy or a request says, or no longer."""
    master.checkpoints.pin(caller, body.checkpoint_uuids, body.pinned)
    return {}


@router.post("/api/v1/checkpoints/{checkpoint_uuid}/metadata")
def set_metadata(checkpoint_uuid: str, body: PostMetadata, master: UsesMaster, caller: UserCaller) -> CheckpointAnswer:
    metadata = body.checkpoint.get("metadata")
    if not isinstance(metadata, dict):
        raise Invalid("checkpoint.metadata must be a JSON object.")
    master.checkpoints.set_metadata(caller, checkpoint_uuid, metadata)
    view = master.trials.get_checkpoint(checkpoint_uuid)
    return CheckpointAnswer(checkpoint=Checkpoint.of(view.row, view.trial, view.config))


FORMS: dict[str, Form] = {"application/gzip": "tgz", "application/x-tar": "tar", "application/zip": "zip"}
ENDINGS: dict[Form, str] = {"tgz": "tar.gz", "tar": "tar", "zip": "zip"}


@router.get("/checkpoints/{checkpoint_uuid}", response_class=StreamingResponse)
def download(
    checkpoint_uuid: str, master: UsesMaster, caller: UserCaller, accept: Annotated[str, Header()] = "*/*"
) -> StreamingResponse:
    """Download a checkpoint's files, for users who cannot reach its storage: as a gzipped tar, or as `Accept` asks for.

    The media types are application/gzip, application/x-tar and application/zip. Outside of `/api/v1`, as in Determined.
    """
    asked = [entry.partition(";")[0].strip() for entry in accept.split(",")]
    kind = next((kind for kind in asked if kind in FORMS), "application/gzip")
    source = master.checkpoint_archives.open(checkpoint_uuid)
    name = f"{checkpoint_uuid}.{ENDINGS[FORMS[kind]]}"
    saved = {"Content-Disposition": f'attachment; filename="{name}"'}
    pieces = checkpoint_files.archive(source, FORMS[kind])
    return StreamingResponse(master.threads.pieces(caller, pieces), media_type=kind, headers=saved)


class SignedFile(Shape):
    path: str
    size: int
    sha256: str
    url: str
    headers: dict[str, str]


class SignedFiles(Shape):
    """`inStore`: whether the checkpoint lies in an object store; else there are no files here. `after`: what to ask for
    next; empty at the end."""

    in_store: bool
    files: list[SignedFile]
    folders: list[str]
    after: str
    authority: str  # certificates (PEM) by which the store is checked; empty: the machine's own


@router.get("/api/x1/checkpoints/{uuid}/files")
def signed_files(
    uuid: str,
    master: UsesMaster,
    caller: AnyCaller,
    after: Annotated[str, Query(max_length=4096)] = "",
    path: Annotated[str, Query(max_length=4096)] = "",
) -> SignedFiles:
    """List a checkpoint's files in an object store, with addresses that anybody may read for an hour: all, those that
    come `after` a path, or the one of a `path`."""
    found = master.stored_checkpoints.sign(uuid, after, path)
    files = [
        SignedFile(path=file.path, size=file.size, sha256=file.sha256, url=file.get.url, headers=dict(file.get.headers))
        for file in found.files
    ]
    return SignedFiles(
        in_store=found.in_store, files=files, folders=found.folders, after=found.after, authority=found.authority
    )


class CheckpointTable(Shape):
    """`rows`: values in the order of `columns`, the newest first; times are seconds since 1970."""

    columns: list[str]
    rows: list[list[Any]]


@router.get("/api/x1/experiments/{experiment_id}/checkpoints")
def of_experiment(experiment_id: int, master: UsesMaster, caller: UserCaller) -> CheckpointTable:
    return _answer(master.checkpoint_table.read(experiment_id=experiment_id))


@router.get("/api/x1/trials/{trial_id}/checkpoints")
def of_trial(trial_id: int, master: UsesMaster, caller: UserCaller) -> CheckpointTable:
    return _answer(master.checkpoint_table.read(trial_id=trial_id))


def _answer(rows: Any) -> CheckpointTable:
    return CheckpointTable(columns=list(checkpoint_table.COLUMNS), rows=[list(row) for row in rows])
