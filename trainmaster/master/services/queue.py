"""The job queue as users see it: experiments with what they hold and what they wait for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy import func, select

from trainmaster.dispatchers.base import ExternalJob, JobState
from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial, User
from trainmaster.master.lifecycle.states import AllocationState, State
from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import Store


@dataclass(frozen=True)
class QueuedJob:
    """One experiment in a pool's queue. `explanation`: why its oldest waiting attempt waits.

    Of somebody else's job `experiment_id`, `user_id` and `workspace_id` are 0, and `username` is a Unix account.
    """

    job_id: str
    experiment_id: int
    name: str
    username: str
    user_id: int
    workspace_id: int
    submitted_at: dt.datetime
    pool: str
    requested_slots: int
    allocated_slots: int
    progress: float
    scheduled: bool
    ahead: int
    explanation: str
    priority: int = 0  # 0 where the scheduler has its own mind
    weight: float = 1.0

    @property
    def external(self) -> bool:
        return self.experiment_id == 0


@dataclass(frozen=True)
class QueueRank:
    """Where an experiment stands in a pool that we schedule ourselves."""

    place: int
    priority: int
    weight: float


_HOLDING = (AllocationState.STARTING.value, AllocationState.RUNNING.value, AllocationState.TERMINATING.value)


def page(
    store: Store,
    pool: str | None,
    offset: int,
    limit: int,
    *,
    descending: bool = False,
    external: Sequence[ExternalJob] = (),
    ranks: Mapping[int, QueueRank] = MappingProxyType({}),
) -> Page[QueuedJob]:
    """Live experiments in the order in which they were submitted, or are served according to `ranks` (by experiment),
    and after them other people's jobs."""
    held = func.coalesce(func.sum(Allocation.slots).filter(Allocation.state.in_(_HOLDING)), 0)
    wanted = func.coalesce(func.sum(Allocation.slots), 0)
    query = (
        select(
            Experiment,
            User.username,
            Project.workspace_id,
            held.label("held"),
            wanted.label("wanted"),
            func.max(Allocation.explanation).label("why"),
        )
        .join(User, User.id == Experiment.owner_id)
        .join(Project, Project.id == Experiment.project_id)
        .outerjoin(Trial, (Trial.experiment_id == Experiment.id) & Trial.end_time.is_(None))
        .outerjoin(Allocation, (Allocation.trial_id == Trial.id) & Allocation.ended_at.is_(None))
        .where(Experiment.end_time.is_(None), Experiment.state != State.PAUSED.value, ~Experiment.unmanaged)
        .group_by(Experiment.id, User.username, Project.workspace_id)
        .order_by(Experiment.start_time, Experiment.id)
    )
    if pool:
        query = query.where(Experiment.resource_pool == pool)
    with store.transaction() as session:
        rows = list(session.execute(query).all())
    rows.sort(key=lambda row: _place(row.Experiment, ranks))
    ahead: dict[str, int] = {}
    jobs = []
    for row in rows:
        experiment: Experiment = row.Experiment
        position = ahead.get(experiment.resource_pool, 0)
        scheduled = row.held > 0
        if not scheduled:
            ahead[experiment.resource_pool] = position + 1
        jobs.append(
            QueuedJob(
                str(experiment.job_id),
                experiment.id,
                experiment.name,
                row.username,
                experiment.owner_id,
                row.workspace_id,
                experiment.start_time,
                experiment.resource_pool,
                int(row.wanted),
                int(row.held),
                experiment.progress,
                scheduled,
                -1 if scheduled else position,
                "" if scheduled else row.why or "",
                *_standing(experiment, ranks),
            )
        )
    others = sorted((job for job in external if not pool or job.pool == pool), key=lambda job: job.submitted_at or 0.0)
    jobs += [_external(job) for job in others]
    ordered: Sequence[QueuedJob] = jobs[::-1] if descending else jobs
    window = cut(offset, limit, len(ordered))
    return Page(ordered[window.start : window.end], window)


def _place(experiment: Experiment, ranks: Mapping[int, QueueRank]) -> tuple[int, int]:
    """Pools that we schedule are in the order in which they are served; the others stay as they are."""
    rank = ranks.get(experiment.id)
    return (0, 0) if not ranks else (0, rank.place) if rank else (1, 0)


def _standing(experiment: Experiment, ranks: Mapping[int, QueueRank]) -> tuple[int, float]:
    rank = ranks.get(experiment.id)
    return (rank.priority, rank.weight) if rank else (0, float(experiment.config["resources"].get("weight") or 1.0))


def _external(job: ExternalJob) -> QueuedJob:
    holds = job.state not in (JobState.QUEUED, JobState.HELD, JobState.UNKNOWN)
    return QueuedJob(
        job_id=job.job_id,
        experiment_id=0,
        name=job.name,
        username=job.user,
        user_id=0,
        workspace_id=0,
        submitted_at=from_epoch(job.submitted_at or 0.0),
        pool=job.pool,
        requested_slots=job.slots,
        allocated_slots=job.slots if holds else 0,
        progress=0.0,
        scheduled=holds,
        ahead=-1,
        explanation="",
    )


def counts(store: Store) -> dict[str, tuple[int, int]]:
    """Per pool: experiments that wait, experiments that hold resources."""
    found: dict[str, tuple[int, int]] = {}
    for job in page(store, None, 0, 0).items:
        queued, scheduled = found.get(job.pool, (0, 0))
        found[job.pool] = (queued, scheduled + 1) if job.scheduled else (queued + 1, scheduled)
    return found
