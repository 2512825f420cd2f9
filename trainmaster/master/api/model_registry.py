"""Endpoints of the model registry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.schemas.entities import Checkpoint, Pagination
from trainmaster.master.api.schemas.records import metrics_report
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster, own_trial
from trainmaster.master.http.messages import Body, Shape, Time
from trainmaster.master.http.parameters import Descending, Strings, sort_key, words
from trainmaster.master.services.metrics.metric_reports import StoredReport
from trainmaster.master.services.model_registry import checkpoint_uses, registered_models
from trainmaster.master.services.model_registry.checkpoint_uses import CheckpointUse
from trainmaster.master.services.model_registry.registered_models import ModelPatch, ModelQuery, ModelView, VersionView
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["models"])


class Model(Shape):
    id: int
    name: str
    description: str
    notes: str
    labels: list[str]
    metadata: Json
    archived: bool
    creation_time: Time
    last_updated_time: Time
    num_versions: int
    user_id: int
    username: str
    workspace_id: int

    @classmethod
    def of(cls, view: ModelView) -> Model:
        row = view.row
        return cls(
            id=row.id,
            name=row.name,
            description=row.description,
            notes=row.notes,
            labels=row.labels,
            metadata=row.model_metadata,
            archived=row.archived,
            creation_time=row.created_at,
            last_updated_time=row.updated_at,
            num_versions=view.num_versions,
            user_id=row.user_id,
            username=view.username,
            workspace_id=row.workspace_id,
        )


class ModelVersion(Shape):
    id: int
    model: Model
    checkpoint: Checkpoint
    version: int
    name: str
    comment: str
    notes: str
    labels: list[str]
    metadata: Json
    creation_time: Time
    last_updated_time: Time
    user_id: int
    username: str

    @classmethod
    def of(cls, view: VersionView) -> ModelVersion:
        row, found = view.row, view.checkpoint
        return cls(
            id=row.id,
            model=Model.of(view.model),
            checkpoint=Checkpoint.of(found.row, found.trial, found.config),
            version=row.version,
            name=row.name,
            comment=row.comment,
            notes=row.notes,
            labels=row.labels,
            metadata=row.version_metadata,
            creation_time=row.created_at,
            last_updated_time=row.updated_at,
            user_id=row.user_id,
            username=view.username,
        )


class ModelAnswer(Shape):
    model: Model


class ModelsAnswer(Shape):
    models: list[Model]
    pagination: Pagination


class VersionAnswer(Shape):
    model_version: ModelVersion


class VersionsAnswer(Shape):
    model: Model
    model_versions: list[ModelVersion]
    pagination: Pagination


class PostModel(Body):
    name: str
    description: str = ""
    notes: str = ""
    labels: list[str] = []  # noqa: RUF012
    metadata: Json = {}  # noqa: RUF012
    workspace_id: int | None = None
    workspace_name: str | None = None


class PatchModel(Body):
    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: list[str] | None = None
    metadata: Json | None = None
    workspace_id: int | None = None
    workspace_name: str | None = None


class MoveModel(Body):
    destination_workspace_id: int
    model_name: str | None = None


class PostVersion(Body):
    checkpoint_uuid: str
    model_name: str | None = None
    name: str | None = None
    comment: str | None = None
    notes: str | None = None
    labels: list[str] | None = None
    metadata: Json | None = None


class PatchVersion(Body):
    checkpoint: Json | None = None  # not changed by this call
    name: str | None = None
    comment: str | None = None
    notes: str | None = None
    labels: list[str] | None = None
    metadata: Json | None = None


class LabelsAnswer(Shape):
    labels: list[str]


@router.get("/model/labels")
def labels(
    master: UsesMaster, caller: UserCaller, workspace_id: Annotated[int, Query(alias="workspaceId")] = 0
) -> LabelsAnswer:
    """Return the most frequent first."""
    return LabelsAnswer(labels=master.registered_models.labels(caller, workspace_id or None))


@router.get("/models")
def list_models(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_LAST_UPDATED_TIME",
    name: str = "",
    description: str = "",
    model_id: Annotated[int | None, Query(alias="id")] = None,
    labels: Strings = [],  # noqa: B006
    archived: bool | None = None,
    users: Strings = [],  # noqa: B006
    user_ids: Annotated[list[int], Query(alias="userIds")] = [],  # noqa: B006
    workspace_ids: Annotated[list[int], Query(alias="workspaceIds")] = [],  # noqa: B006
    workspace_names: Annotated[list[str], Query(alias="workspaceNames")] = [],  # noqa: B006
) -> ModelsAnswer:
    query = ModelQuery(
        name=name,
        description=description,
        model_id=model_id,
        labels=labels,
        archived=archived,
        users=users,
        user_ids=user_ids,
        workspace_ids=workspace_ids,
        workspace_names=workspace_names,
        sort_by=sort_key(sort_by, registered_models.SORTS, "last_updated_time", enums.MODELS),
        descending=bool(descending),
    )
    page = master.registered_models.list_page(caller, query, offset, limit)
    return ModelsAnswer(models=[Model.of(view) for view in page.items], pagination=Pagination.of(page.window))


@router.post("/models")
def create(body: PostModel, master: UsesMaster, caller: UserCaller) -> ModelAnswer:
    changes = ModelPatch(
        name=body.name,
        description=body.description,
        notes=body.notes,
        labels=body.labels,
        metadata=body.metadata,
    )
    view = master.registered_models.create(caller, changes, body.workspace_id, body.workspace_name)
    return ModelAnswer(model=Model.of(view))


@router.get("/models/{model_name}")
def get(model_name: str, master: UsesMaster, caller: UserCaller) -> ModelAnswer:
    """Find a model by name, or by id where a number is given."""
    return ModelAnswer(model=Model.of(master.registered_models.get(model_name)))


@router.patch("/models/{model_name}")
def patch(model_name: str, body: PatchModel, master: UsesMaster, caller: UserCaller) -> ModelAnswer:
    changes = ModelPatch(
        name=body.name,
        description=body.description,
        notes=body.notes,
        labels=body.labels,
        metadata=body.metadata,
    )
    view = master.registered_models.patch(caller, model_name, changes, body.workspace_id, body.workspace_name)
    return ModelAnswer(model=Model.of(view))


@router.delete("/models/{model_name}")
def delete(model_name: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.registered_models.remove(caller, model_name)
    return {}


@router.post("/models/{model_name}/archive")
def archive(model_name: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.registered_models.set_archived(caller, model_name, True)
    return {}


@router.post("/models/{model_name}/unarchive")
def unarchive(model_name: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.registered_models.set_archived(caller, model_name, False)
    return {}


@router.post("/models/{model_name}/move")
def move(model_name: str, body: MoveModel, master: UsesMaster, caller: UserCaller) -> Json:
    master.registered_models.move(caller, model_name, body.destination_workspace_id)
    return {}


# -- versions -----------------------------------------------------------------------------------------------------


@router.get("/models/{model_name}/versions")
def list_versions(
    model_name: str,
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_VERSION",
) -> VersionsAnswer:
    key = sort_key(sort_by, registered_models.VERSION_SORTS, "version", enums.MODEL_VERSIONS)
    model, page = master.registered_models.versions(model_name, key, bool(descending), offset, limit)
    shown = [ModelVersion.of(view) for view in page.items]
    return VersionsAnswer(model=Model.of(model), model_versions=shown, pagination=Pagination.of(page.window))


@router.post("/models/{model_name}/versions")
def register(model_name: str, body: PostVersion, master: UsesMaster, caller: UserCaller) -> VersionAnswer:
    changes = ModelPatch(
        name=body.name, comment=body.comment, notes=body.notes, labels=body.labels, metadata=body.metadata
    )
    view = master.registered_models.register(caller, model_name, body.checkpoint_uuid, changes)
    return VersionAnswer(model_version=ModelVersion.of(view))


@router.get("/models/{model_name}/versions/{version}")
def get_version(model_name: str, version: int, master: UsesMaster, caller: UserCaller) -> VersionAnswer:
    return VersionAnswer(model_version=ModelVersion.of(master.registered_models.get_version(model_name, version)))


@router.patch("/models/{model_name}/versions/{version}")
def patch_version(
    model_name: str, version: int, body: PatchVersion, master: UsesMaster, caller: UserCaller
) -> VersionAnswer:
    changes = ModelPatch(
        name=body.name, comment=body.comment, notes=body.notes, labels=body.labels, metadata=body.metadata
    )
    view = master.registered_models.patch_version(caller, model_name, version, changes)
    return VersionAnswer(model_version=ModelVersion.of(view))


@router.delete("/models/{model_name}/versions/{version}")
def delete_version(model_name: str, version: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.registered_models.remove_version(caller, model_name, version)
    return {}


# -- which trials use them ----------------------------------------------------------------------------------------


class TrialSourceInfo(Body):
    trial_id: int
    checkpoint_uuid: str
    trial_source_info_type: str = "TRIAL_SOURCE_INFO_TYPE_UNSPECIFIED"
    model_id: int | None = None
    model_version: int | None = None


class ReportSource(Body):
    trial_source_info: TrialSourceInfo


class SourceAnswer(Shape):
    trial_id: int
    checkpoint_uuid: str


class MetricsAnswer(Shape):
    metrics: list[Json]


KindOfUse = Annotated[str, Query(alias="trialSourceInfoType")]
MetricGroup = Annotated[str, Query(alias="metricGroup")]


def _kind(name: str) -> str | None:
    kinds = words([name], "TRIAL_SOURCE_INFO_TYPE_", checkpoint_uses.KINDS, enums.TRIAL_SOURCE) if name else []
    return kinds[0] if kinds else None


@router.post("/trial-source-info")
def report_source(body: ReportSource, master: UsesMaster, caller: AnyCaller) -> SourceAnswer:
    info = body.trial_source_info
    own_trial(caller, info.trial_id)
    kind = _kind(info.trial_source_info_type) or "INFERENCE"
    master.checkpoint_uses.note(
        CheckpointUse(info.trial_id, info.checkpoint_uuid, kind, info.model_id, info.model_version)
    )
    return SourceAnswer(trial_id=info.trial_id, checkpoint_uuid=info.checkpoint_uuid)


@router.get("/checkpoints/{checkpoint_uuid}/metrics")
def metrics_of_checkpoint(
    checkpoint_uuid: str, master: UsesMaster, caller: UserCaller, use: KindOfUse = "", group: MetricGroup = ""
) -> MetricsAnswer:
    """Return the metrics that trials which use the checkpoint have reported."""
    reports = master.checkpoint_uses.metrics_of_checkpoint(checkpoint_uuid, _kind(use), group or None)
    return MetricsAnswer(metrics=[_used(report, group) for report in reports])


@router.get("/models/{model_name}/versions/{version}/metrics")
def metrics_of_version(
    model_name: str,
    version: int,
    master: UsesMaster,
    caller: UserCaller,
    use: KindOfUse = "",
    group: MetricGroup = "",
) -> MetricsAnswer:
    """Return the metrics that trials which use the version have reported."""
    reports = master.checkpoint_uses.metrics_of_version(model_name, version, _kind(use), group or None)
    return MetricsAnswer(metrics=[_used(report, group) for report in reports])


def _used(report: StoredReport, group: str) -> Json:
    """Without a group, Determined's client searches reports of all groups for the average, validations too."""
    shown = metrics_report(report)
    if not group and "validation_metrics" in report.metrics:
        shown["metrics"] = {"avg_metrics": report.metrics["validation_metrics"], **report.metrics}
    return shown
