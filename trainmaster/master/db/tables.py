"""The database's main tables. Entities are ORM classes; the hot tables (`metrics`, `task_logs`) are written with
set-based statements.

Times are `timestamptz`. JSON columns hold exactly what the API shows, so that a list needs no second query.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from trainmaster.master.values.columns import COLUMNS
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.exits import ExitRecords
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.search import SearchResult
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json
from trainmaster.master.values.tasks import ServiceAddress
from trainmaster.master.values.validation import StoredValidation

Time = dt.datetime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012
        Json: JSONB,
        list[str]: JSONB,
        list[int]: JSONB,
        list[Json]: JSONB,
        Time: DateTime(timezone=True),
        str: Text,
        float: Double,
        uuid.UUID: Uuid,
        bytes: LargeBinary,
        **COLUMNS,
    }


def _now() -> Any:
    return mapped_column(server_default=func.now())


class MasterRecord(Base):
    """One row: the identity of this master. It is part of every token, so it never changes."""

    __tablename__ = "cluster"
    id: Mapped[int] = mapped_column(primary_key=True, default=1)
    cluster_id: Mapped[uuid.UUID]
    secret: Mapped[bytes]  # key of the allocations' session tokens
    created_at: Mapped[Time] = _now()


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    username: Mapped[str] = mapped_column(unique=True)
    display_name: Mapped[str | None]
    password_hash: Mapped[str | None]  # Argon2 of what the client sends; None: cannot log in with a password
    admin: Mapped[bool] = mapped_column(default=False)
    active: Mapped[bool] = mapped_column(default=True)
    remote: Mapped[bool] = mapped_column(default=False)
    modified_at: Mapped[Time] = _now()
    last_auth_at: Mapped[Time | None]
    # The Unix account that jobs run as where the cluster can: Determined's agent user.
    agent_uid: Mapped[int | None] = mapped_column(BigInteger)
    agent_user: Mapped[str | None]
    agent_gid: Mapped[int | None] = mapped_column(BigInteger)
    agent_group: Mapped[str | None]


class UserSession(Base):
    """A bearer token of a user, from a log-in or created for programs; only its SHA-256 is stored."""

    __tablename__ = "user_sessions"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    token_hash: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[Time] = _now()
    expires_at: Mapped[Time]
    kind: Mapped[str] = mapped_column(default="USER_SESSION")  # or ACCESS_TOKEN
    origin: Mapped[str] = mapped_column(default="", server_default="")  # origin of the page that logged in
    description: Mapped[str] = mapped_column(default="")
    revoked: Mapped[bool] = mapped_column(default=False)


class Ticket(Base):
    """Admits the user of a session once, within seconds, for one purpose; only its SHA-256 is stored."""

    __tablename__ = "tickets"
    ticket_hash: Mapped[bytes] = mapped_column(primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("user_sessions.id", ondelete="CASCADE"), index=True)
    purpose: Mapped[str]
    expires_at: Mapped[Time] = mapped_column(index=True)


class Workspace(Base):
    __tablename__ = "workspaces"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    archived: Mapped[bool] = mapped_column(default=False)
    immutable: Mapped[bool] = mapped_column(default=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[Time] = _now()
    state: Mapped[str] = mapped_column(default="")  # "", DELETING or DELETE_FAILED
    error: Mapped[str] = mapped_column(default="")  # why it could not be deleted
    # Defaults of its experiments; its Unix account overrides that of their owner.
    agent_uid: Mapped[int | None] = mapped_column(BigInteger)
    agent_user: Mapped[str | None]
    agent_gid: Mapped[int | None] = mapped_column(BigInteger)
    agent_group: Mapped[str | None]
    checkpoint_storage: Mapped[StorageRef | None]
    compute_pool: Mapped[str] = mapped_column(default="")
    aux_pool: Mapped[str] = mapped_column(default="")


class Project(Base):
    __tablename__ = "projects"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    description: Mapped[str] = mapped_column(default="")
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id"), index=True)
    archived: Mapped[bool] = mapped_column(default=False)
    immutable: Mapped[bool] = mapped_column(default=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[Time] = _now()
    key: Mapped[str]  # one to five letters and digits that stand for it
    notes: Mapped[list[Json]] = mapped_column(default=list)  # {"name", "contents"}
    state: Mapped[str] = mapped_column(default="")  # "", DELETING or DELETE_FAILED
    error: Mapped[str] = mapped_column(default="")
    seq: Mapped[int | None] = mapped_column(BigInteger)  # of its last change: `changes.py`

    __table_args__ = (
        Index("uq_projects_key", "key", unique=True),
        Index("uq_projects_name", "workspace_id", "name", unique=True),
        Index("ix_projects_unnumbered", "id", postgresql_where=text("seq IS NULL")),
    )


class Job(Base):
    """An entry of the queue: a submission of a user (an experiment or a standalone task)."""

    __tablename__ = "jobs"
    job_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    job_type: Mapped[str]
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    submitted_at: Mapped[Time] = _now()


class Experiment(Base):
    __tablename__ = "experiments"
    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.job_id"))
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    project_id: Mapped[int] = mapped_column(ForeignKey("projects.id"))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id", ondelete="SET NULL"))
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(default="")  # why it is in this state, in words
    name: Mapped[str]
    description: Mapped[str | None]
    notes: Mapped[str] = mapped_column(default="")
    labels: Mapped[list[str]] = mapped_column(default=list)
    archived: Mapped[bool] = mapped_column(default=False)
    config: Mapped[StoredConfig]
    original_config: Mapped[str]
    resource_pool: Mapped[str]
    searcher_type: Mapped[str]
    searcher_metric: Mapped[str]
    smaller_is_better: Mapped[bool]
    seed: Mapped[int] = mapped_column(BigInteger)
    search: Mapped[Json | None] = mapped_column(deferred=True)  # the searcher's snapshot: `searches.py`
    search_version: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))  # of the search
    snapshot_version: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))  # of its snapshot
    warm_start: Mapped[uuid.UUID | None]  # the checkpoint that new trials load before their first step
    progress: Mapped[float] = mapped_column(default=0.0)
    num_trials: Mapped[int] = mapped_column(default=0)
    live_trials: Mapped[int] = mapped_column(default=0)
    shutdown: Mapped[SearchResult | None]
    best_trial_id: Mapped[int | None] = mapped_column(Integer)
    best_metric: Mapped[float | None]
    checkpoint_count: Mapped[int] = mapped_column(default=0)
    checkpoint_size: Mapped[int] = mapped_column(BigInteger, default=0)
    context_size: Mapped[int] = mapped_column(default=0)
    gc_due: Mapped[bool] = mapped_column(default=False)  # it has ended or its policy has changed: give up checkpoints
    propagation_due: Mapped[bool] = mapped_column(
        "tell_due", default=False, server_default=text("false")
    )  # trials lag behind its state
    unmanaged: Mapped[bool] = mapped_column(default=False, server_default=text("false"))  # its trials run elsewhere
    external_id: Mapped[str | None]  # its external id, given by the program that runs it
    start_time: Mapped[Time] = _now()
    end_time: Mapped[Time | None]

    __table_args__ = (
        Index("ix_experiments_owner_id", "owner_id", "id"),
        Index("ix_experiments_project_id", "project_id", "id"),
        Index("ix_experiments_live", "id", postgresql_where=text("end_time IS NULL")),
        Index("ix_experiments_gc_due", "id", postgresql_where=text("gc_due")),
        Index("ix_experiments_tell_due", "id", postgresql_where=text("propagation_due")),
        Index("ix_experiments_start_time", "start_time"),
        Index("ix_experiments_name", "name"),
        Index("ix_experiments_state", "state", "id"),
        Index("uq_experiments_external_id", "external_id", unique=True),
    )


class ModelDefinition(Base):
    """The experiment's context as a gzipped tar, in a table of its own, so that no list reads it."""

    __tablename__ = "model_definitions"
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True)
    archive: Mapped[bytes]


class Task(Base):
    __tablename__ = "tasks"
    task_id: Mapped[str] = mapped_column(primary_key=True)
    task_type: Mapped[str]
    job_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("jobs.job_id"))
    start_time: Mapped[Time] = _now()
    end_time: Mapped[Time | None]


class Trial(Base):
    __tablename__ = "trials"
    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.task_id"), unique=True)
    # Of a trial that was continued: its earlier tasks, the oldest first.
    earlier_tasks: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    request_id: Mapped[str]
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(default="")
    hparams: Mapped[Json]
    seed: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int] = mapped_column(default=0)  # allocations asked for; the run id of the latest
    restarts: Mapped[int] = mapped_column(default=0)  # failures charged to the user
    setbacks: Mapped[int] = mapped_column(default=0)  # consecutive failures of the infrastructure
    stop: Mapped[str | None]  # why it is being stopped: searcher, cancel, kill, error, user
    searcher_told: Mapped[bool] = mapped_column(default=False)  # an early exit already went to the searcher
    runner_state: Mapped[str] = mapped_column(default="")
    progress: Mapped[float] = mapped_column(default=0.0)
    total_batches: Mapped[int] = mapped_column(BigInteger, default=0)
    summary_metrics: Mapped[Json] = mapped_column(default=dict)  # {group: {name: {"count", "min", ...}}}
    latest_validation: Mapped[StoredValidation | None]
    best_validation: Mapped[StoredValidation | None]
    searcher_metric: Mapped[float | None]  # best value of the searcher's metric
    latest_checkpoint: Mapped[uuid.UUID | None]
    warm_start: Mapped[uuid.UUID | None]  # another trial's checkpoint, which it loads while it has none
    parent_id: Mapped[int | None]  # the trial that `warm_start` is of, where the search chose it
    # "paused" by the search; "resumed" by it, until the next attempt; or empty.
    search_pause: Mapped[str] = mapped_column(default="", server_default="")
    begun_anew: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # resumed without a checkpoint
    checkpoint_count: Mapped[int] = mapped_column(default=0)
    checkpoint_size: Mapped[int] = mapped_column(BigInteger, default=0)
    refused_reports: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    run_metadata: Mapped[Json | None] = mapped_column("metadata")
    log_retention_days: Mapped[int | None]  # -1 for ever; None: the experiment's setting
    external_id: Mapped[str | None]  # external id of an unmanaged trial
    heartbeat_at: Mapped[Time | None]  # an unmanaged trial's last heartbeat
    log_policy: Mapped[str | None]  # the log policy that a line has matched last
    no_retries: Mapped[str | None]  # why a failure is final, by a log policy
    blocked_nodes: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    start_time: Mapped[Time] = _now()
    end_time: Mapped[Time | None]

    __table_args__ = (
        Index("uq_trials_request", "experiment_id", "request_id", unique=True),
        Index("ix_trials_experiment_id", "experiment_id", "id"),
        Index("ix_trials_experiment_metric", "experiment_id", "searcher_metric"),
        Index("ix_trials_live", "experiment_id", postgresql_where=text("end_time IS NULL")),
        Index("uq_trials_external_id", "experiment_id", "external_id", unique=True),
        Index("ix_trials_heartbeat_at", "heartbeat_at", postgresql_where=text("end_time IS NULL")),
    )


class Allocation(Base):
    """One attempt to run a task on resources: the outbox row of a batch job and what became of it."""

    __tablename__ = "allocations"
    id: Mapped[str] = mapped_column(primary_key=True)  # <task id>.<attempt>
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.task_id", ondelete="CASCADE"), index=True)
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    token: Mapped[str] = mapped_column(unique=True)  # the scheduler's job name
    state: Mapped[str]
    submission: Mapped[str]  # NEW, SUBMITTING, UNKNOWN, SUBMITTED
    attempt: Mapped[int]
    dispatcher: Mapped[str]
    pool: Mapped[str]
    slots: Mapped[int]
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    run_as: Mapped[str | None]  # the account of the job, fixed before the first submit; None: the master's
    not_before: Mapped[Time] = _now()  # submit no earlier (back-off after setbacks)
    submit_started_at: Mapped[Time | None]
    submitted_at: Mapped[Time | None]
    native_id: Mapped[str | None]  # the scheduler's job id
    cluster: Mapped[str] = mapped_column(default="")
    lease_job: Mapped[str | None]  # the job that presented the token first; no other may run
    leased_at: Mapped[Time | None]
    num_nodes: Mapped[int] = mapped_column(default=1)
    heartbeat_at: Mapped[Time | None]
    observed_at: Mapped[Time | None]
    observed_state: Mapped[str] = mapped_column(default="")
    observed: Mapped[ObservedJob | None]  # the latest observation: raw state, reason, nodes, end time
    absent_since: Mapped[Time | None]
    explanation: Mapped[str] = mapped_column(default="")  # why it waits, or how it ended
    preempt_at: Mapped[Time | None]
    preempt_reason: Mapped[str | None]
    preempt_deadline: Mapped[Time | None]
    preempt_acked: Mapped[bool] = mapped_column(default=False)
    kill_at: Mapped[Time | None]
    kill_sent_at: Mapped[Time | None]
    checkpoints_before: Mapped[int] = mapped_column(default=0)
    exits: Mapped[ExitRecords] = mapped_column(default=lambda: ExitRecords({}))  # exit records by node rank
    outcome: Mapped[str | None]
    exit_code: Mapped[int | None]
    exit_text: Mapped[str] = mapped_column(default="")
    collected: Mapped[bool] = mapped_column(default=False)  # job folder read and removed
    # Devices that Determined's harness reports, by container. Only their own endpoint reads them.
    accelerators: Mapped[list[Json] | None] = mapped_column(deferred=True)
    ready: Mapped[bool | None]  # whether a service in it has reported ready; None: there is none to wait for
    proxy: Mapped[ServiceAddress | None]  # where that service listens
    created_at: Mapped[Time] = _now()
    ended_at: Mapped[Time | None]
    workspace_id: Mapped[int | None]  # in which it ran, where its experiment has been moved to another one since
    workspace_name: Mapped[str | None]

    __table_args__ = (
        Index("ix_allocations_live", "dispatcher", "id", postgresql_where=text("ended_at IS NULL")),
        Index("ix_allocations_uncollected", "dispatcher", postgresql_where=text("NOT collected")),
        Index("ix_allocations_setbacks", "ended_at", postgresql_where=text("outcome = 'infrastructure'")),
        Index("ix_allocations_leased", "pool", "leased_at"),
    )


class PoolResume(Base):
    """The time when an administrator last closed the circuit breaker of a pool."""

    __tablename__ = "pool_standing"
    pool: Mapped[str] = mapped_column(primary_key=True)
    resumed_at: Mapped[Time]


class AllocationNode(Base):
    """A node that joined an allocation: its lease, and what it brought to the rendezvous."""

    __tablename__ = "allocation_nodes"
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.id", ondelete="CASCADE"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(server_default="")  # the runtime process; no other may take its place
    name: Mapped[str]
    slot_ids: Mapped[list[int]]
    addresses: Mapped[list[str]]  # reported by the job; passed on to its own nodes, and trusted for nothing else
    peer: Mapped[str] = mapped_column(default="", server_default="")  # the address that asked for its lease
    image_digest: Mapped[str] = mapped_column(
        default="", server_default=""
    )  # of its container's image, as the job says
    joined_at: Mapped[Time] = _now()


class BarrierEntry(Base):
    """One peer's contribution to a barrier; kept until the next barrier is complete, so that a retry gets the same
    answer."""

    __tablename__ = "gatherings"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.id", ondelete="CASCADE"))
    kind: Mapped[str]
    number: Mapped[int] = mapped_column(default=0, server_default="0")  # of the barrier, among those of its kind
    request_uuid: Mapped[str]
    data: Mapped[Json]
    size: Mapped[int] = mapped_column(default=0, server_default="0")  # bytes of `data`

    __table_args__ = (
        Index("uq_gatherings_request", "allocation_id", "kind", "request_uuid", unique=True),
        Index("ix_gatherings_number", "allocation_id", "kind", "number"),
    )


class ReportStream(Base):
    """How much of a report stream has been taken in: makes every report count once."""

    __tablename__ = "report_streams"
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.id", ondelete="CASCADE"), primary_key=True)
    stream: Mapped[str] = mapped_column(primary_key=True)
    acked: Mapped[int] = mapped_column(BigInteger, default=0)


class Checkpoint(Base):
    __tablename__ = "checkpoints"
    uuid: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), index=True)
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    task_id: Mapped[str | None]
    allocation_id: Mapped[str | None]
    state: Mapped[str]
    report_time: Mapped[Time] = _now()
    steps_completed: Mapped[int] = mapped_column(BigInteger)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    resources: Mapped[Json]
    ckpt_metadata: Mapped[Json] = mapped_column("metadata")
    storage: Mapped[StorageRef]
    storage_id: Mapped[int | None]  # its number in `declared_storage`, by which clients distinguish them
    metric: Mapped[float | None]  # the searcher's metric at these steps
    validation: Mapped[Json | None]  # validation metrics at these steps
    pinned: Mapped[bool] = mapped_column(default=False, server_default=text("false"))  # nothing removes it


class Story(Base):
    """Why each transition happened: one row for every event that a state machine took."""

    __tablename__ = "story"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"))
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    at: Mapped[Time] = _now()
    subject: Mapped[str]  # experiment, trial, search
    event: Mapped[str]
    before: Mapped[str] = mapped_column(default="")
    after: Mapped[str] = mapped_column(default="")
    why: Mapped[str] = mapped_column(default="")
    decisions: Mapped[list[str]] = mapped_column(default=list)

    __table_args__ = (Index("ix_story_experiment_id", "experiment_id", "trial_id"),)


# The hot tables. `metrics` is partitioned by kind, so that training noise never slows reading validations.

metrics = Table(
    "metrics",
    Base.metadata,
    Column(
        "id", BigInteger, nullable=False, primary_key=True, server_default=text("nextval('metrics_id_seq'::regclass)")
    ),
    Column("kind", Text, nullable=False, primary_key=True),  # training, validation, generic, profiling
    Column("trial_id", Integer, nullable=False),
    Column("run_id", Integer, nullable=False),
    Column("group", Text, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("archived", Boolean, nullable=False, server_default=text("false")),
    Column("metrics", JSONB, nullable=False),
    # In the order of the steps, whatever the kind: pages of a trial's history merge the partitions without sorting.
    Index("ix_metrics_trial", "trial_id", "steps", "id", postgresql_where=text("NOT archived")),
    Index("ix_metrics_archived", "trial_id", postgresql_where=text("archived")),
    postgresql_partition_by="LIST (kind)",
)

# The partitions by name: a condition on `kind` reads the rows although it prunes all other partitions, and so keeps
# PostgreSQL from answering out of the index alone.
METRICS_OF = {
    kind: metrics.to_metadata(MetaData(), name=f"metrics_{kind}")
    for kind in ("training", "validation", "generic", "profiling")
}

task_logs = Table(
    "task_logs",
    Base.metadata,
    Column("id", BigInteger, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("allocation_id", Text),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("level", SmallInteger, nullable=False),  # 1 TRACE .. 6 CRITICAL, as Determined numbers them
    Column("rank_id", Integer),
    Column("agent_id", Text),
    Column("container_id", Text),
    Column("stdtype", Text),
    Column("source", Text, nullable=False),
    Column("log", Text, nullable=False),
    Index("ix_task_logs_task", "task_id", "id"),
)
