"""The job queue as users see it: experiments and standalone tasks, with the slots they hold and those they wait for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import ExternalJob, JobState
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Project, Task, Trial, User
from trainmaster.master.lifecycle.standalone import TaskState
from trainmaster.master.lifecycle.states import AllocationState, State
from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.values.configs import JobConfig

EXPERIMENT, EXTERNAL = "EXPERIMENT", "EXTERNAL"


@dataclass(frozen=True)
class QueuedJob:
    """An experiment or standalone task in a pool's queue. `explanation`: why its oldest waiting attempt waits.

    `kind` is EXPERIMENT, the type of a standalone task, or EXTERNAL for somebody else's job: of that `entity` is empty,
    `user_id` and `workspace_id` are 0, and `username` is a Unix account.
    """

    job_id: str
    kind: str
    entity: str  # the experiment's number or the task's id
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
    priority: int = 0  # 0 where the scheduler keeps its own order
    weight: float = 1.0

    @property
    def external(self) -> bool:
        return self.kind == EXTERNAL


@dataclass(frozen=True)
class QueueRank:
    """The position of an experiment or task in a pool that the master schedules itself."""

    place: int
    priority: int
    weight: float


_HOLDING = (AllocationState.STARTING.value, AllocationState.RUNNING.value, AllocationState.TERMINATING.value)
_HELD = func.coalesce(func.sum(Allocation.slots).filter(Allocation.state.in_(_HOLDING)), 0).label("held")
_STARTED = func.count(Allocation.id).filter(Allocation.state.in_(_HOLDING)).label("started")
_WANTED = func.coalesce(func.sum(Allocation.slots), 0).label("wanted")
_WHY = func.max(Allocation.explanation).label("why")


class JobQueue(BoundService):
    """The job queue."""

    def page(
        self,
        pool: str | None,
        offset: int,
        limit: int,
        *,
        descending: bool = False,
        scheduled: bool | None = None,
        external: Sequence[ExternalJob] = (),
        ranks: Mapping[str, QueueRank] = MappingProxyType({}),
    ) -> Page[QueuedJob]:
        """Live entries in order of submission, or of service according to `ranks` (by experiment or task), followed by
        other people's jobs. `scheduled`: only those that hold resources, or only those that wait."""
        with self._store.transaction() as session:
            queue = [*_experiments(session, pool), *_tasks(session, pool)]
        queue.sort(key=lambda job: job.submitted_at)
        queue.sort(key=lambda job: _place(job, ranks))
        ahead: dict[str, int] = {}
        jobs = []
        for job in queue:
            position = ahead.get(job.pool, 0)
            if not job.scheduled:
                ahead[job.pool] = position + 1
                job = replace(job, ahead=position)
            rank = ranks.get(job.entity)
            jobs.append(replace(job, priority=rank.priority, weight=rank.weight) if rank else job)
        others = sorted(
            (job for job in external if not pool or job.pool == pool), key=lambda job: job.submitted_at or 0.0
        )
        jobs += [_external(job) for job in others]
        jobs = [job for job in jobs if scheduled in (None, job.scheduled)]
        ordered: Sequence[QueuedJob] = jobs[::-1] if descending else jobs
        window = cut(offset, limit, len(ordered))
        return Page(ordered[window.start : window.end], window)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Per pool: experiments and tasks that wait, and that hold resources."""
        counts: dict[str, tuple[int, int]] = {}
        for job in self.page(None, 0, 0).items:
            queued, scheduled = counts.get(job.pool, (0, 0))
            counts[job.pool] = (queued, scheduled + 1) if job.scheduled else (queued + 1, scheduled)
        return counts


def _experiments(session: Session, pool: str | None) -> list[QueuedJob]:
    query = (
        select(Experiment, User.username, Project.workspace_id, _HELD, _STARTED, _WANTED, _WHY)
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
    jobs = []
    for row in session.execute(query):
        e: Experiment = row.Experiment
        job = (str(e.job_id), EXPERIMENT, str(e.id), e.name, row.username, e.owner_id, row.workspace_id)
        jobs.append(_queued(job, e.start_time, e.resource_pool, e.progress, e.config, row, held=row.held > 0))
    return jobs


def _tasks(session: Session, pool: str | None) -> list[QueuedJob]:
    query = (
        select(Standalone, Task.job_id, User.username, _HELD, _STARTED, _WANTED, _WHY)
        .join(Task, Task.task_id == Standalone.task_id)
        .join(User, User.id == Standalone.owner_id)
        .outerjoin(Allocation, (Allocation.task_id == Standalone.task_id) & Allocation.ended_at.is_(None))
        .where(Standalone.end_time.is_(None), Standalone.state != TaskState.PAUSED.value)
        .group_by(Standalone.task_id, Task.job_id, User.username)
        .order_by(Standalone.start_time, Standalone.task_id)
    )
    if pool:
        query = query.where(Standalone.pool == pool)
    jobs = []
    for row in session.execute(query):
        t: Standalone = row.Standalone
        job = (str(row.job_id), t.kind, t.task_id, t.description, row.username, t.owner_id, t.workspace_id)
        jobs.append(_queued(job, t.start_time, t.pool, 0.0, t.config, row, held=row.started > 0))
    return jobs


def _queued(
    job: tuple[str, str, str, str, str, int, int],
    at: dt.datetime,
    pool: str,
    progress: float,
    config: JobConfig,
    row: Any,
    *,
    held: bool,
) -> QueuedJob:
    why, weight = "" if held else row.why or "", config.weight
    return QueuedJob(*job, at, pool, int(row.wanted), int(row.held), progress, held, -1, why, weight=weight)


def _place(job: QueuedJob, ranks: Mapping[str, QueueRank]) -> tuple[int, int]:
    """Return the sort key: pools that the master schedules are in order of service; the others keep their order."""
    rank = ranks.get(job.entity)
    return (0, 0) if not ranks else (0, rank.place) if rank else (1, 0)


def _external(job: ExternalJob) -> QueuedJob:
    holds = job.state not in (JobState.QUEUED, JobState.HELD, JobState.UNKNOWN)
    return QueuedJob(
        job_id=job.job_id,
        kind=EXTERNAL,
        entity="",
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
