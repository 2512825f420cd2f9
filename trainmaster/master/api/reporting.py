"""Endpoints for reports made call by call: by Determined's harness in a job, or by a training that runs elsewhere."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar

from fastapi import APIRouter
from pydantic import AfterValidator, Field

from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UsesMaster
from trainmaster.master.http.messages import Body
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.ingest import single_calls
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.metrics.metric_reports import MAX_STEPS, MetricReport
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["reports"])
V1 = "/api/v1"


def _utc(time: dt.datetime) -> dt.datetime:
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


Moment = Annotated[dt.datetime, AfterValidator(_utc)]  # without a time zone Determined's clients mean UTC
Size = Annotated[int, Field(ge=0, lt=2**63)]


class Metrics(Body):
    avg_metrics: Json
    batch_metrics: list[Json] | None = None


class TrialMetrics(Body):
    metrics: Metrics
    trial_id: int = 0
    trial_run_id: int = Field(1, ge=0, lt=2**31)
    steps_completed: int = Field(0, ge=0, le=MAX_STEPS)
    report_time: Moment | None = None


class GroupMetrics(Body):
    group: str
    metrics: TrialMetrics


class Progress(Body):
    progress: float = Field(allow_inf_nan=False)
    trial_id: int = 0
    is_raw: bool = True


class EarlyExit(Body):
    reason: str


class Checkpoint(Body):
    uuid: str
    resources: dict[str, Size]
    metadata: Json
    training: Json = {}  # noqa: RUF012
    state: str = "STATE_COMPLETED"
    task_id: str | None = None
    allocation_id: str | None = None
    report_time: Moment | None = None
    storage_id: int | None = None


class Left(Body):
    resources: dict[str, Size] = {}  # noqa: RUF012


class PatchCheckpoint(Body):
    uuid: str
    resources: Left | None = None


class PatchCheckpoints(Body):
    checkpoints: list[PatchCheckpoint] = Field(min_length=1)


class RunStart(Body):
    run_id: int
    checkpoint_storage: Json | None = None


class RunMetadata(Body):
    metadata: Json
    run_id: int = 0


class TaskLog(Body):
    """Both formats: that of `/api/v1/task/logs`, and that of the older `/task-logs`, which has `rank`."""

    with_nul: ClassVar[frozenset[str]] = frozenset({"log"})

    log: str
    task_id: str
    id: int | None = None
    allocation_id: str | None = None
    agent_id: str | None = None
    container_id: str | None = None
    rank_id: int | None = Field(None, ge=0, lt=2**31)
    rank: int | None = Field(None, ge=0, lt=2**31)
    timestamp: Moment | None = None
    level: str | None = None
    source: str | None = None
    stdtype: str | None = None


class TaskLogs(Body):
    logs: list[TaskLog]


@router.post(f"{V1}/trials/{{trial_id}}/metrics")
def report_metrics(trial_id: int, body: GroupMetrics, master: UsesMaster, caller: AnyCaller) -> Json:
    return _report(master, caller, trial_id, body.group, body.metrics)


@router.post(f"{V1}/trials/{{trial_id}}/training_metrics")
def report_training(trial_id: int, body: TrialMetrics, master: UsesMaster, caller: AnyCaller) -> Json:
    return _report(master, caller, trial_id, "training", body)


@router.post(f"{V1}/trials/{{trial_id}}/validation_metrics")
def report_validation(trial_id: int, body: TrialMetrics, master: UsesMaster, caller: AnyCaller) -> Json:
    return _report(master, caller, trial_id, "validation", body)


def _report(master: ServedMaster, caller: AnyCaller, trial_id: int, group: str, body: TrialMetrics) -> Json:
    measured = body.metrics
    report = MetricReport(
        group, body.steps_completed, measured.avg_metrics, measured.batch_metrics, body.report_time or now()
    )
    run_id = body.trial_run_id or 1
    master.single_calls.take_metrics(caller, trial_id, run_id, report)
    return {}


@router.post(f"{V1}/trials/{{trial_id}}/progress")
def report_progress(trial_id: int, body: Progress, master: UsesMaster, caller: AnyCaller) -> Json:
    master.single_calls.take_progress(caller, trial_id, body.progress)
    return {}


@router.post(f"{V1}/trials/{{trial_id}}/early_exit")
def report_early_exit(trial_id: int, body: EarlyExit, master: UsesMaster, caller: AnyCaller) -> Json:
    master.single_calls.take_early_exit(caller, trial_id, body.reason)
    return {}


@router.post(f"{V1}/checkpoints")
def report_checkpoint(body: Checkpoint, master: UsesMaster, caller: AnyCaller) -> Json:
    if body.state not in ("STATE_COMPLETED", "STATE_UNSPECIFIED"):
        raise Invalid(f"A checkpoint is reported when it is whole, as STATE_COMPLETED, not as {body.state}.")
    new = single_calls.NewCheckpoint(
        body.uuid,
        body.task_id or caller.task_id or "",
        body.allocation_id,
        body.resources,
        body.metadata,
        body.storage_id,
        body.report_time,
    )
    master.single_calls.take_checkpoint(caller, new)
    return {}


@router.patch(f"{V1}/checkpoints")
def patch_checkpoints(body: PatchCheckpoints, master: UsesMaster, caller: AnyCaller) -> Json:
    for change in body.checkpoints:
        if change.resources is not None:
            left = change.resources.resources
            master.single_calls.patch_checkpoint(caller, change.uuid, left)
    return {}


@router.post(f"{V1}/runs/start")
def run_start(body: RunStart, master: UsesMaster, caller: AnyCaller) -> Json:
    storage = body.checkpoint_storage
    return {"storageId": master.single_calls.prepare(caller, body.run_id, storage)}


@router.get(f"{V1}/runs/{{trial_id}}/metadata")
def get_metadata(trial_id: int, master: UsesMaster, caller: AnyCaller) -> Json:
    return {"metadata": master.single_calls.get_metadata(trial_id)}


@router.post(f"{V1}/runs/{{trial_id}}/metadata")
def set_metadata(trial_id: int, body: RunMetadata, master: UsesMaster, caller: AnyCaller) -> Json:
    kept = master.single_calls.set_metadata(caller, trial_id, body.metadata)
    return {"metadata": kept}


@router.post(f"{V1}/task/logs")
def task_logs(body: TaskLogs, master: UsesMaster, caller: AnyCaller) -> Json:
    master.single_calls.take_logs(caller, [_entry(line) for line in body.logs])
    return {}


@router.post("/task-logs")
def old_task_logs(body: list[TaskLog], master: UsesMaster, caller: AnyCaller) -> Json:
    """Take in the output of programs that run elsewhere; unlike Determined's, it requires a log-in."""
    master.single_calls.take_logs(caller, [_entry(line) for line in body])
    return {}


def _entry(sent: TaskLog) -> single_calls.LogEntry:
    level = (sent.level or "INFO").removeprefix("LOG_LEVEL_")
    line = log_store.NewLogLine(
        log=sent.log.rstrip("\r\n"),
        level="INFO" if level == "UNSPECIFIED" else level,
        at=sent.timestamp,
        rank=sent.rank_id if sent.rank_id is not None else sent.rank,
        agent_id=sent.agent_id,
        container_id=sent.container_id,
        stdtype=sent.stdtype,
        source=sent.source or "task",
    )
    return single_calls.LogEntry(sent.task_id, line, sent.allocation_id)
