"""Endpoints with which owners edit their experiments."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from trainmaster.master.api.schemas.entities import Experiment
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape, Storable, rfc3339
from trainmaster.master.services.experiments.experiment_edits import ExperimentChange
from trainmaster.master.services.removal import checkpoint_gc
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["experiments"])


class ExperimentAnswer(Shape):
    experiment: Experiment


class LabelsAnswer(Shape):
    labels: list[str]


class PatchResources(Storable):
    """Unlike elsewhere null has a meaning: `maxSlots` null removes the limit."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    max_slots: int | None = None
    priority: int | None = None
    weight: float | None = None


class PatchStorage(Body):
    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


class PatchExperiment(Body):
    id: int | None = None
    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: list[str] | None = None
    resources: PatchResources | None = None
    checkpoint_storage: PatchStorage | None = None


class MoveExperiment(Body):
    destination_project_id: int
    experiment_id: int | None = None


class ContinueExperiment(Body):
    id: int
    override_config: str = ""


class RetainLogs(Body):
    num_days: int
    experiment_id: int | None = None
    trial_id: int | None = None


@router.patch("/api/v1/experiments/{experiment_id}")
def patch(experiment_id: int, body: PatchExperiment, master: UsesMaster, caller: UserCaller) -> ExperimentAnswer:
    resources = body.resources.model_dump(exclude_unset=True) if body.resources else None
    storage = body.checkpoint_storage.model_dump(exclude_none=True) if body.checkpoint_storage else None
    if resources:
        resources = {key: value for key, value in resources.items() if value is not None or key == "max_slots"}
    change = ExperimentChange(body.name, body.description, body.notes, body.labels, storage, resources)
    master.experiment_edits.patch(caller, experiment_id, change)
    return ExperimentAnswer(experiment=Experiment.of(master.experiments.get(experiment_id)))


@router.post("/api/v1/experiments/{experiment_id}/archive")
def archive(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.experiment_edits.set_archived(caller, experiment_id, True)
    return {}


@router.post("/api/v1/experiments/{experiment_id}/unarchive")
def unarchive(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.experiment_edits.set_archived(caller, experiment_id, False)
    return {}


@router.put("/api/v1/experiments/{experiment_id}/labels/{label:path}")
def add_label(experiment_id: int, label: str, master: UsesMaster, caller: UserCaller) -> LabelsAnswer:
    labels = master.experiment_edits.add_label(caller, experiment_id, label)
    return LabelsAnswer(labels=labels)


@router.delete("/api/v1/experiments/{experiment_id}/labels/{label:path}")
def remove_label(experiment_id: int, label: str, master: UsesMaster, caller: UserCaller) -> LabelsAnswer:
    labels = master.experiment_edits.remove_label(caller, experiment_id, label)
    return LabelsAnswer(labels=labels)


@router.get("/api/v1/experiment/labels")
def labels(
    master: UsesMaster, caller: UserCaller, project_id: Annotated[int, Query(alias="projectId")] = 0
) -> LabelsAnswer:
    """Return the most frequent first."""
    return LabelsAnswer(labels=master.experiment_edits.labels(caller, project_id or None))


@router.post("/api/v1/experiments/{experiment_id}/move")
def move(experiment_id: int, body: MoveExperiment, master: UsesMaster, caller: UserCaller) -> Json:
    master.experiment_edits.move(caller, experiment_id, body.destination_project_id)
    return {}


@router.post("/api/v1/experiments/continue")
def go_on(body: ContinueExperiment, master: UsesMaster, caller: UserCaller) -> Json:
    """Return the single trial continues from its latest checkpoint."""
    master.continuation.go_on(caller, body.id, body.override_config)
    view = master.experiments.get(body.id)
    return {"experiment": Experiment.of(view).model_dump(by_alias=True), "warnings": []}


@router.delete("/api/v1/experiments/{experiment_id}/tensorboard-files")
def remove_tensorboard_files(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.experiment_edits.remove_tensorboard_files(caller, experiment_id)
    return {}


@router.get("/experiments/{experiment_id}/preview_gc", tags=["experiments"])
def preview_gc(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    experiment_best: Annotated[int, Query(alias="save_experiment_best", ge=0)],
    trial_best: Annotated[int, Query(alias="save_trial_best", ge=0)],
    trial_latest: Annotated[int, Query(alias="save_trial_latest", ge=0)],
) -> Json:
    """List what another policy would remove; outside of /api/v1 and in a format of its own, as in Determined."""
    policy = checkpoint_gc.KeepPolicy(experiment_best, trial_best, trial_latest)
    metric, checkpoints = master.checkpoint_policies.preview(experiment_id, policy)
    shown = [
        {
            "UUID": str(row.uuid),
            "TrialID": row.trial_id,
            "StepsCompleted": row.steps_completed,
            "State": row.state,
            "ReportTime": rfc3339(row.report_time),
            "Resources": row.resources,
            "ValidationMetrics": row.validation,
            **({"step": {"validation": row.validation}} if row.validation else {}),
        }
        for row in checkpoints
    ]
    return {"checkpoints": shown, "metric_name": metric}


# -- logs ----------------------------------------------------------------------------------------------------------


@router.put("/api/v1/experiments/{experiment_id}/retain_logs")
def retain_logs(experiment_id: int, body: RetainLogs, master: UsesMaster, caller: UserCaller) -> Json:
    """Keep its trials' logs for so many days after their end; -1 for ever."""
    master.retention.keep_logs(caller, experiment_id, body.num_days)
    return {}


@router.put("/api/v1/trials/{trial_id}/retain_logs")
def retain_trial_logs(trial_id: int, body: RetainLogs, master: UsesMaster, caller: UserCaller) -> Json:
    master.retention.keep_trial_logs(caller, trial_id, body.num_days)
    return {}


class RemainingAnswer(Shape):
    remaining_days: int = Field(description="-1: for ever")


@router.get("/api/v1/trials/{trial_id}/remaining_log_retention_days")
def remaining_days(trial_id: int, master: UsesMaster, caller: UserCaller) -> RemainingAnswer:
    return RemainingAnswer(remaining_days=master.retention.remaining_days(trial_id))


class CleanedAnswer(Shape):
    removed_count: int


@router.post("/api/v1/cleanup_logs")
def clean_up_logs(master: UsesMaster, caller: UserCaller) -> CleanedAnswer:
    """Remove expired logs at once, which the master otherwise does every hour."""
    return CleanedAnswer(removed_count=master.retention.clean_up())
