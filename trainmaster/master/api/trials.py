"""Endpoints for trials, their metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from trainmaster.master.api.schemas.entities import Pagination, Trial, checkpoint_workload
from trainmaster.master.api.schemas.records import metrics_report, metrics_workload
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape, rfc3339
from trainmaster.master.http.parameters import METRIC_TYPES, Descending, words
from trainmaster.master.http.streams import lines_of, with_errors
from trainmaster.master.services.clock import now
from trainmaster.master.services.experiments import trials
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["trials"])


class TrialAnswer(Shape):
    trial: Trial


@router.get("/api/v1/trials/metrics/trial_metrics")
def trial_metrics(
    master: UsesMaster,
    caller: UserCaller,
    trial_ids: Annotated[list[int], Query(alias="trialIds")],
    group: str = "",
) -> StreamingResponse:
    master.trials.check_all(caller, trial_ids)
    return _metrics(master, caller, trial_ids, group or None)


@router.get("/api/v1/trials/metrics/training_metrics")
def training_metrics(
    master: UsesMaster, caller: UserCaller, trial_ids: Annotated[list[int], Query(alias="trialIds")]
) -> StreamingResponse:
    master.trials.check_all(caller, trial_ids)
    return _metrics(master, caller, trial_ids, "training")


@router.get("/api/v1/trials/metrics/validation_metrics")
def validation_metrics(
    master: UsesMaster, caller: UserCaller, trial_ids: Annotated[list[int], Query(alias="trialIds")]
) -> StreamingResponse:
    master.trials.check_all(caller, trial_ids)
    return _metrics(master, caller, trial_ids, "validation")


def _metrics(master: UsesMaster, caller: UserCaller, trial_ids: list[int], group: str | None) -> StreamingResponse:
    def messages() -> Iterator[Json]:
        batch: list[Json] = []
        for report in master.metric_reports.stream(trial_ids, group):
            batch.append(metrics_report(report))
            if len(batch) == 100:
                yield {"metrics": batch}
                batch = []
        if batch:
            yield {"metrics": batch}

    pieces = master.threads.pieces(caller, lines_of(messages()))
    return StreamingResponse(with_errors(pieces), media_type="application/json")


@router.get("/api/v1/trials/{trial_id}")
def get(trial_id: int, master: UsesMaster, caller: AnyCaller) -> TrialAnswer:
    return answer_of(master, trial_id)


def answer_of(master: ServedMaster, trial_id: int) -> TrialAnswer:
    row, checkpoint = master.trials.get(trial_id)
    return TrialAnswer(trial=Trial.of(row, checkpoint, now()))


@router.post("/api/v1/trials/{trial_id}/kill")
def kill(trial_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.trials.kill(caller, trial_id)
    return {}


@router.get("/api/v1/trials/{trial_id}/workloads")
def workloads(
    trial_id: int,
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    wanted: Annotated[str, Query(alias="filter")] = "",
    batches: Annotated[bool, Query(alias="includeBatchMetrics")] = False,
    without_deleted: Annotated[bool, Query(alias="removeDeletedCheckpoints")] = False,
    sort_by: Annotated[str, Query(alias="sortKey", max_length=1000)] = "",
    metric_type: Annotated[str, Query(alias="metricType")] = "",
) -> Json:
    """`sortKey`: `batches`, which counts steps, or a metric; `metricType`: in reports of which kind."""
    options = ("CHECKPOINT", "VALIDATION", "CHECKPOINT_OR_VALIDATION")
    option = next(iter(words([wanted], "FILTER_OPTION_", options, enums.WORKLOADS)), "") if wanted else ""
    kinds = option.lower().split("_or_") if option else trials.WORKLOADS
    groups = words([metric_type], "METRIC_TYPE_", METRIC_TYPES, enums.METRIC_TYPE) if metric_type else []
    in_reports = [group.lower() for group in groups] or ["training", "validation"]
    by = trials.MetricOrder(sort_by, in_reports) if sort_by not in ("", "batches") else None
    page = master.trials.workloads(
        trial_id, offset, limit, kinds,
        descending=bool(descending), without_deleted=without_deleted, by=by)  # fmt: skip
    shown: list[Json] = []
    for load in page.items:
        if load.training is not None:
            shown.append({"training": metrics_workload(load.training, batches=batches)})
        elif load.validation is not None:
            shown.append({"validation": metrics_workload(load.validation, batches=batches)})
        elif load.checkpoint is not None:
            shown.append({"checkpoint": checkpoint_workload(load.checkpoint)})
    return {"workloads": shown, "pagination": Pagination.of(page.window).model_dump(by_alias=True)}


@router.get("/api/x1/trials/{trial_id}/story", tags=["ours"])
def story(trial_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Return the trial's story: why each transition happened, oldest first."""
    rows = master.experiments.story(trial_id)
    return {
        "events": [
            {
                "time": rfc3339(row.at),
                "subject": row.subject,
                "event": row.event,
                "before": row.before,
                "after": row.after,
                "why": row.why,
                "decisions": row.decisions,
            }
            for row in rows
        ]
    }
