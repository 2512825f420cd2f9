"""Typed values of the master's answers. Fields that this client does not know are only in `raw`.

`parse` reads the types of `wire.py`, which are generated from the master's OpenAPI document, so the type checker finds
a field that the master does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from trainmaster.client import wire

Json = Mapping[str, Any]
TERMINAL = frozenset({"COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED"})


def _state(word: str) -> str:
    return word.removeprefix("STATE_")


@dataclass(frozen=True)
class Experiment:
    """Fields of an experiment.

    `progress` is 0 to 1, times are RFC 3339 text, `state` is a word such as RUNNING or COMPLETED. `ended`, `parent_id`,
    `best_trial_id` and `best_metric` are None where there is none.
    """

    id: int
    name: str
    state: str
    reason: str
    owner: str
    progress: float
    started: str
    ended: str | None
    resource_pool: str
    parent_id: int | None
    archived: bool
    description: str
    labels: tuple[str, ...]
    num_trials: int
    best_trial_id: int | None
    best_metric: float | None
    searcher: str
    searcher_metric: str
    workspace: str
    project: str
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: wire.Experiment, **more: Any) -> Self:
        return cls(
            id=int(raw["id"]),
            name=str(raw["name"]),
            state=_state(raw.get("state", "")),
            reason=str(raw.get("stateReason") or ""),
            owner=str(raw["username"]),
            progress=float(raw.get("progress") or 0.0),
            started=str(raw["startTime"]),
            ended=raw.get("endTime"),
            resource_pool=str(raw.get("resourcePool") or ""),
            parent_id=raw.get("forkedFrom"),
            archived=bool(raw.get("archived")),
            description=str(raw.get("description") or ""),
            labels=tuple(raw.get("labels") or ()),
            num_trials=int(raw.get("numTrials") or 0),
            best_trial_id=raw.get("bestTrialId"),
            best_metric=raw.get("bestTrialSearcherMetric"),
            searcher=str(raw.get("searcherType") or ""),
            searcher_metric=str(raw.get("searcherMetric") or ""),
            workspace=str(raw.get("workspaceName") or ""),
            project=str(raw.get("projectName") or ""),
            raw=raw,
            **more,
        )

    @property
    def ended_for_good(self) -> bool:
        """Whether the state is final."""
        return self.state in TERMINAL


@dataclass(frozen=True)
class Trial:
    """Fields of a trial. `batches` counts completed steps, `restarts` those that count against `max_restarts`."""

    id: int
    experiment_id: int
    state: str
    reason: str
    hparams: Json
    started: str
    ended: str | None
    batches: int
    restarts: int
    attempts: int
    stop_cause: str | None
    best_metric: float | None
    task_id: str
    summary: Json = field(repr=False)
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: wire.Trial, **more: Any) -> Self:
        return cls(
            id=int(raw["id"]),
            experiment_id=int(raw["experimentId"]),
            state=_state(raw.get("state", "")),
            reason=str(raw.get("stateReason") or ""),
            hparams=raw.get("hparams") or {},
            started=str(raw["startTime"]),
            ended=raw.get("endTime"),
            batches=int(raw.get("totalBatchesProcessed") or 0),
            restarts=int(raw.get("restarts") or 0),
            attempts=int(raw.get("attempts") or 0),
            stop_cause=raw.get("stopCause"),
            best_metric=raw.get("searcherMetricValue"),
            task_id=str(raw.get("taskId") or ""),
            summary=raw.get("summaryMetrics") or {},
            raw=raw,
            **more,
        )

    @property
    def ended_for_good(self) -> bool:
        """Whether the state is final."""
        return self.state in TERMINAL


@dataclass(frozen=True)
class Checkpoint:
    """Fields of a checkpoint. `resources` has the size of each file in bytes, `storage` the section of its storage."""

    uuid: str
    trial_id: int | None
    experiment_id: int | None
    state: str
    steps_completed: int
    metric: float | None
    reported: str
    resources: Mapping[str, int]
    metadata: Json
    storage: Json
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: wire.Checkpoint, **more: Any) -> Self:
        training = raw.get("training") or {}
        metadata = raw.get("metadata") or {}
        return cls(
            uuid=str(raw["uuid"]),
            trial_id=training.get("trialId"),
            experiment_id=training.get("experimentId"),
            state=_state(raw.get("state", "")),
            steps_completed=int(metadata.get("steps_completed") or 0),
            metric=training.get("searcherMetric"),
            reported=str(raw.get("reportTime") or ""),
            resources={path: int(size) for path, size in (raw.get("resources") or {}).items()},
            metadata=metadata,
            storage=raw.get("storage") or {},
            raw=raw,
            **more,
        )

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(self.resources.values())


@dataclass(frozen=True)
class QueuedJob:
    """An entry of the job queue. `explanation` is why it waits, if the scheduler gives a reason."""

    job_id: str
    type: str
    name: str
    entity_id: str
    owner: str
    submitted: str
    slots_acquired: int
    slots_needed: int
    state: str
    jobs_ahead: int
    explanation: str
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: Json) -> QueuedJob:
        full = raw.get("full") or raw.get("limited") or {}
        summary = full.get("summary") or {}
        return cls(
            job_id=str(full["jobId"]),
            type=str(full.get("type", "")).removeprefix("TYPE_"),
            name=str(full.get("name") or ""),
            entity_id=str(full.get("entityId") or ""),
            owner=str(full.get("username") or ""),
            submitted=str(full.get("submissionTime") or ""),
            slots_acquired=int(full.get("allocatedSlots") or 0),
            slots_needed=int(full.get("requestedSlots") or 0),
            state=_state(summary.get("state", "")),
            jobs_ahead=int(summary.get("jobsAhead") or 0),
            explanation=str(full.get("explanation") or ""),
            raw=full,
        )


@dataclass(frozen=True)
class LogLine:
    """A line of a log. `message` is the bare text, `log` the line as `det` prints it; `rank` and `node` may be None."""

    id: str
    timestamp: str
    level: str
    log: str
    message: str
    rank: int | None
    node: str | None
    source: str
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: Json) -> LogLine:
        return cls(
            id=str(raw.get("id") or ""),
            timestamp=str(raw.get("timestamp") or ""),
            level=str(raw.get("level") or "").removeprefix("LOG_LEVEL_"),
            log=str(raw.get("log") or ""),
            message=str(raw.get("message") or ""),
            rank=raw.get("rankId"),
            node=raw.get("agentId"),
            source=str(raw.get("source") or ""),
            raw=raw,
        )

    @property
    def number(self) -> int:
        """Number of the line, ascending in order of arrival."""
        return int(self.id or 0)


@dataclass(frozen=True)
class MetricsReport:
    """One report of metrics. `group` is training, validation, or a name of the training code's own."""

    trial_id: int
    group: str
    steps_completed: int
    metrics: Json
    time: str
    run_id: int

    @classmethod
    def parse(cls, raw: Json) -> MetricsReport:
        whole = raw["metrics"]
        return cls(
            trial_id=int(raw["trialId"]),
            group=str(raw["group"]),
            steps_completed=int(raw["totalBatches"]),
            metrics=whole["validation_metrics"] if "validation_metrics" in whole else whole["avg_metrics"],
            time=str(raw["endTime"]),
            run_id=int(raw["trialRunId"]),
        )


@dataclass(frozen=True)
class Model:
    """Fields of a model of the registry. `labels` and `metadata` are free for users."""

    id: int
    name: str
    description: str
    notes: str
    labels: tuple[str, ...]
    metadata: Json
    archived: bool
    created: str
    updated: str
    num_versions: int
    owner: str
    workspace_id: int
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: wire.Model, **more: Any) -> Self:
        return cls(
            id=int(raw["id"]),
            name=raw["name"],
            description=raw["description"],
            notes=raw["notes"],
            labels=tuple(raw["labels"]),
            metadata=raw["metadata"],
            archived=raw["archived"],
            created=raw["creationTime"],
            updated=raw["lastUpdatedTime"],
            num_versions=int(raw["numVersions"]),
            owner=raw["username"],
            workspace_id=int(raw["workspaceId"]),
            raw=raw,
            **more,
        )


@dataclass(frozen=True)
class ModelVersion:
    """Fields of a model's version: a checkpoint with a number."""

    id: int
    version: int
    model_name: str
    checkpoint_uuid: str
    name: str
    comment: str
    notes: str
    labels: tuple[str, ...]
    metadata: Json
    created: str
    updated: str
    owner: str
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def parse(cls, raw: wire.ModelVersion, **more: Any) -> Self:
        return cls(
            id=int(raw["id"]),
            version=int(raw["version"]),
            model_name=raw["model"]["name"],
            checkpoint_uuid=raw["checkpoint"]["uuid"],
            name=raw["name"],
            comment=raw["comment"],
            notes=raw["notes"],
            labels=tuple(raw["labels"]),
            metadata=raw["metadata"],
            created=raw["creationTime"],
            updated=raw["lastUpdatedTime"],
            owner=raw["username"],
            raw=raw,
            **more,
        )


@dataclass(frozen=True)
class StoryEvent:
    """An entry of a trial's story: what happened to which `subject`, its state `before` and `after`, and why."""

    time: str
    subject: str
    event: str
    before: str
    after: str
    why: str
    decisions: tuple[str, ...]

    @classmethod
    def parse(cls, raw: Json) -> StoryEvent:
        return cls(
            raw["time"],
            raw["subject"],
            raw["event"],
            raw["before"],
            raw["after"],
            raw["why"],
            tuple(raw["decisions"]),
        )
