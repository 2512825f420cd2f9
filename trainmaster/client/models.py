"""What a master tells, as values with types. Unknown fields of a newer master are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
TERMINAL = frozenset({"COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED"})


def _state(raw: Json) -> str:
    return str(raw.get("state", "")).removeprefix("STATE_")


@dataclass(frozen=True)
class Experiment:
    """`progress` is 0..1; times are RFC 3339 text; `state` is a bare word such as RUNNING or COMPLETED."""

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
    raw: Json

    @classmethod
    def parse(cls, raw: Json) -> Experiment:
        return cls(
            id=int(raw["id"]),
            name=str(raw["name"]),
            state=_state(raw),
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
        )

    @property
    def ended_for_good(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True)
class Trial:
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
    summary: Json
    raw: Json

    @classmethod
    def parse(cls, raw: Json) -> Trial:
        return cls(
            id=int(raw["id"]),
            experiment_id=int(raw["experimentId"]),
            state=_state(raw),
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
        )

    @property
    def ended_for_good(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True)
class Checkpoint:
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
    raw: Json

    @classmethod
    def parse(cls, raw: Json) -> Checkpoint:
        training = raw.get("training") or {}
        metadata = raw.get("metadata") or {}
        return cls(
            uuid=str(raw["uuid"]),
            trial_id=training.get("trialId"),
            experiment_id=training.get("experimentId"),
            state=_state(raw),
            steps_completed=int(metadata.get("steps_completed") or 0),
            metric=training.get("searcherMetric"),
            reported=str(raw.get("reportTime") or ""),
            resources={path: int(size) for path, size in (raw.get("resources") or {}).items()},
            metadata=metadata,
            storage=raw.get("storage") or {},
            raw=raw,
        )

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(self.resources.values())


@dataclass(frozen=True)
class QueuedJob:
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
    raw: Json

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
            state=_state(summary),
            jobs_ahead=int(summary.get("jobsAhead") or 0),
            explanation=str(full.get("explanation") or ""),
            raw=full,
        )


@dataclass(frozen=True)
class LogLine:
    id: str
    timestamp: str
    level: str
    log: str
    message: str
    rank: int | None
    node: str | None
    source: str
    raw: Json

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
        """Ascending in the order of arrival."""
        return int(self.id or 0)


@dataclass(frozen=True)
class StoryEvent:
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
