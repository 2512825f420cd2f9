"""Determined's entities as JSON: camelCase, 64-bit integers as strings, RFC 3339 times, null for absent values."""

from __future__ import annotations

import datetime as dt

from pydantic import Field

from trainmaster.config.secrets import masked, masked_text
from trainmaster.master.db import tables
from trainmaster.master.http.messages import Int64, Shape, Time, rfc3339
from trainmaster.master.lifecycle.states import AllocationState
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.experiments.experiments import ExperimentView
from trainmaster.master.services.paging import Window
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.stored import Json
from trainmaster.master.values.validation import Validation


class Pagination(Shape):
    offset: int
    limit: int
    start_index: int
    end_index: int
    total: int

    @classmethod
    def of(cls, window: Window) -> Pagination:
        return cls(
            offset=window.offset, limit=window.limit, start_index=window.start, end_index=window.end, total=window.total
        )


class AgentUserGroup(Shape):
    agent_uid: int | None = None
    agent_user: str | None = None
    agent_gid: int | None = None
    agent_group: str | None = None


class User(Shape):
    id: int
    username: str
    admin: bool
    active: bool
    remote: bool
    display_name: str = ""
    modified_at: Time
    last_auth_at: Time | None = None
    agent_user_group: AgentUserGroup | None = None

    @classmethod
    def of(cls, row: tables.User) -> User:
        linked = AgentUserGroup(
            agent_uid=row.agent_uid, agent_user=row.agent_user, agent_gid=row.agent_gid, agent_group=row.agent_group
        )
        return cls(
            id=row.id,
            username=row.username,
            admin=row.admin,
            active=row.active,
            remote=row.remote,
            display_name=row.display_name or "",
            modified_at=row.modified_at,
            last_auth_at=row.last_auth_at,
            agent_user_group=linked if row.agent_user is not None else None,
        )


def _shown_state(view: ExperimentView) -> str:
    if view.row.state != "ACTIVE":
        return view.row.state
    return "RUNNING" if view.row.unmanaged else view.phase


class Experiment(Shape):
    id: int
    name: str
    description: str
    notes: str
    labels: list[str]
    state: str
    state_reason: str  # ours: why it is in this state
    archived: bool
    start_time: Time
    end_time: Time | None
    duration: int | None
    progress: float
    num_trials: int
    trial_ids: list[int]
    username: str
    display_name: str
    user_id: int
    project_id: int
    project_name: str
    project_owner_id: int
    workspace_id: int
    workspace_name: str
    parent_archived: bool
    resource_pool: str
    job_id: str
    searcher_type: str
    searcher_metric: str
    forked_from: int | None
    best_trial_id: int | None
    best_trial_searcher_metric: float | None
    checkpoint_count: int
    checkpoint_size: Int64
    model_definition_size: int
    hyperparameters: Json
    config: Json
    original_config: str
    unmanaged: bool
    external_experiment_id: str | None

    @classmethod
    def of(cls, view: ExperimentView) -> Experiment:
        row = view.row
        return cls(
            id=row.id,
            name=row.name,
            description=row.description or "",
            notes=row.notes,
            labels=row.labels,
            state=f"STATE_{_shown_state(view)}",
            state_reason=row.reason,
            archived=row.archived,
            start_time=row.start_time,
            end_time=row.end_time,
            duration=int((row.end_time - row.start_time).total_seconds()) if row.end_time else None,
            progress=row.progress,
            num_trials=row.num_trials,
            trial_ids=list(view.trial_ids),
            username=view.username,
            display_name=view.display_name or "",
            user_id=row.owner_id,
            project_id=row.project_id,
            project_name=view.project_name,
            project_owner_id=view.project_owner_id,
            workspace_id=view.workspace_id,
            workspace_name=view.workspace_name,
            parent_archived=view.parent_archived,
            resource_pool=row.resource_pool,
            job_id=str(row.job_id),
            searcher_type=row.searcher_type,
            searcher_metric=row.searcher_metric,
            forked_from=row.parent_id,
            best_trial_id=row.best_trial_id,
            best_trial_searcher_metric=row.best_metric,
            checkpoint_count=row.checkpoint_count,
            checkpoint_size=row.checkpoint_size,
            model_definition_size=row.context_size,
            hyperparameters=row.config.hyperparameters,
            config=masked(row.config.to_json()),
            original_config=masked_text(row.original_config),
            unmanaged=row.unmanaged,
            external_experiment_id=row.external_id,
        )


class Trial(Shape):
    id: int
    experiment_id: int
    state: str
    state_reason: str  # ours
    start_time: Time
    end_time: Time | None
    hparams: Json
    restarts: int
    total_batches_processed: int
    best_validation: Json | None
    latest_validation: Json | None
    best_checkpoint: Json | None
    checkpoint_count: int
    total_checkpoint_size: Int64
    runner_state: str
    wall_clock_time: float
    task_id: str
    task_ids: list[str]
    warm_start_checkpoint_uuid: str | None
    searcher_metric_value: float | None
    summary_metrics: Json
    metadata: Json | None
    log_policy_matched: str | None
    attempts: int  # ours: allocations so far
    stop_cause: str | None  # ours: why it is being, or was, stopped
    refused_reports: Int64  # ours: how many reports the master refused for good

    @classmethod
    def of(
        cls, row: tables.Trial, best_checkpoint: tables.Checkpoint | None = None, now: dt.datetime | None = None
    ) -> Trial:
        end = row.end_time or now or row.start_time
        return cls(
            id=row.id,
            experiment_id=row.experiment_id,
            state=f"STATE_{row.state}",
            state_reason=row.reason,
            start_time=row.start_time,
            end_time=row.end_time,
            hparams=row.hparams,
            restarts=row.restarts,
            total_batches_processed=row.total_batches,
            best_validation=_workload(row.best_validation),
            latest_validation=_workload(row.latest_validation),
            best_checkpoint=checkpoint_workload(best_checkpoint) if best_checkpoint else None,
            checkpoint_count=row.checkpoint_count,
            total_checkpoint_size=row.checkpoint_size,
            runner_state=row.runner_state,
            wall_clock_time=(end - row.start_time).total_seconds(),
            task_id=row.task_id,
            task_ids=[*row.earlier_tasks, row.task_id],
            warm_start_checkpoint_uuid=str(row.warm_start) if row.warm_start else None,
            searcher_metric_value=row.searcher_metric,
            summary_metrics=row.summary_metrics,
            metadata=row.run_metadata,
            log_policy_matched=row.log_policy,
            attempts=row.attempts,
            stop_cause=row.stop,
            refused_reports=row.refused_reports,
        )


class Checkpoint(Shape):
    uuid: str
    task_id: str | None
    allocation_id: str | None
    report_time: Time
    state: str
    resources: dict[str, Int64]
    metadata: Json
    training: Json
    storage_id: int | None
    storage: Json  # ours: where it lies

    @classmethod
    def of(cls, row: tables.Checkpoint, trial: tables.Trial | None, config: StoredConfig | None) -> Checkpoint:
        training: Json = {}
        if trial is not None:
            training = {"trialId": trial.id, "experimentId": trial.experiment_id, "hparams": trial.hparams}
            training["experimentConfig"] = masked(config.to_json()) if config is not None else {}
        if row.metric is not None:
            training["searcherMetric"] = row.metric
        if row.validation is not None:
            training["validationMetrics"] = {"avgMetrics": row.validation, "batchMetrics": []}
        return cls(
            uuid=str(row.uuid),
            task_id=row.task_id,
            allocation_id=row.allocation_id,
            report_time=row.report_time,
            state=f"STATE_{row.state}",
            resources=row.resources,
            metadata=row.ckpt_metadata,
            training=training,
            storage_id=row.storage_id,
            storage=masked(row.storage.to_json()),
        )


ALLOCATION_STATES = {
    AllocationState.PENDING: "STATE_QUEUED",
    AllocationState.ASSIGNED: "STATE_QUEUED",
    AllocationState.STARTING: "STATE_STARTING",
    AllocationState.RUNNING: "STATE_RUNNING",
    AllocationState.TERMINATING: "STATE_TERMINATING",
    AllocationState.TERMINATED: "STATE_TERMINATED",
}


class Allocation(Shape):
    task_id: str
    allocation_id: str
    state: str
    is_ready: bool
    start_time: Time | None
    end_time: Time | None
    slots: int
    exit_reason: str | None
    status_code: int | None
    # Ours: the scheduler's view of it.
    resource_pool: str
    job_id: str | None
    job_name: str  # the token, which a scheduler shows as the job's name
    scheduler_state: str
    explanation: str
    nodes: list[str]

    @classmethod
    def of(cls, row: tables.Allocation) -> Allocation:
        observed = row.observed or ObservedJob()
        return cls(
            task_id=row.task_id,
            allocation_id=row.id,
            state=ALLOCATION_STATES[AllocationState(row.state)],
            is_ready=row.lease_job is not None and row.ready is not False,
            start_time=row.leased_at,
            end_time=row.ended_at,
            slots=row.slots,
            exit_reason=row.exit_text or None,
            status_code=row.exit_code,
            resource_pool=row.pool,
            job_id=row.native_id,
            job_name=row.token,
            scheduler_state=observed.raw or "",
            explanation=row.explanation,
            nodes=list(observed.nodes),
        )


class ResourcePool(Shape):
    name: str
    description: str
    type: str = "RESOURCE_POOL_TYPE_STATIC"
    num_agents: int
    slots_available: int
    slots_used: int
    slot_type: str
    slots_per_agent: int
    aux_container_capacity: int
    aux_containers_running: int = 0
    default_compute_pool: bool
    default_aux_pool: bool
    preemptible: bool
    min_agents: int
    max_agents: int
    scheduler_type: str
    scheduler_fitting_policy: str
    location: str
    cluster_name: str
    accelerator: str
    instance_type: str = ""
    image_id: str = ""
    details: Json = Field(default_factory=dict)
    stats: Json
    resource_manager_metadata: dict[str, str] = Field(default_factory=dict)
    # Fields of cloud and Docker pools that a batch scheduler does not have.
    agent_docker_image: str = ""
    agent_docker_network: str = ""
    agent_docker_runtime: str = ""
    agent_fluent_image: str = ""
    container_startup_script: str = ""
    startup_script: str = ""
    master_url: str = ""
    master_cert_name: str = ""
    max_idle_agent_period: float = 0.0
    max_agent_starting_period: float = 0.0
    aux_container_capacity_per_agent: int = 0

    @classmethod
    def of(cls, served: ServedPool, *, compute: bool, aux: bool, queued: int, scheduled: int) -> ResourcePool:
        pool, traits = served.pool, served.cluster.dispatcher.traits
        notes = [problem.text for problem in pool.problems]
        if served.plain not in ("", pool.name):
            notes.append(f"(Pool {served.plain} of {served.cluster.name}.)")
        return cls(
            name=pool.name,
            description=" ".join([pool.description, *notes]).strip(),
            num_agents=pool.nodes,
            slots_available=pool.slots_total,
            slots_used=pool.slots_used,
            slot_type=f"TYPE_{pool.slot_type.value.upper()}",
            slots_per_agent=pool.slots_per_node,
            aux_container_capacity=pool.slots_total,
            default_compute_pool=compute,
            default_aux_pool=aux,
            preemptible=True,
            min_agents=pool.nodes,
            max_agents=pool.nodes,
            scheduler_type=f"SCHEDULER_TYPE_{traits.scheduler_type}",
            scheduler_fitting_policy=f"FITTING_POLICY_{traits.fitting_policy}",
            location=served.cluster.kind,
            cluster_name=served.cluster.name,
            accelerator=pool.accelerator,
            stats={"queuedCount": queued, "scheduledCount": scheduled},
        )


def checkpoint_workload(row: tables.Checkpoint) -> Json:
    return {
        "uuid": str(row.uuid),
        "endTime": rfc3339(row.report_time),
        "state": f"STATE_{row.state}",
        "resources": {path: str(size) for path, size in row.resources.items()},
        "totalBatches": row.steps_completed,
        "metadata": row.ckpt_metadata,
    }


def _workload(stored: Validation | None) -> Json | None:
    return {**stored.to_json(), "numInputs": 0} if stored else None
