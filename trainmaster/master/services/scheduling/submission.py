"""Submission of jobs to schedulers: which are due, and how each submit went."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import case, func, select, update
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobRef
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial
from trainmaster.master.lifecycle.allocation import later
from trainmaster.master.lifecycle.states import AllocationState, SubmissionState
from trainmaster.master.services.access.accounts import account_on, without_effect
from trainmaster.master.services.clock import now
from trainmaster.master.services.clusters.clusters import Cluster, ServedPool
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.scheduling import task_spec
from trainmaster.master.services.scheduling.feasibility import shortage
from trainmaster.master.values.configs import JobConfig

SHORTAGE_DELAY = 15.0  # seconds between two checks of whether a pool has become large enough


@dataclass(frozen=True)
class PendingSubmission:
    """An allocation to submit now."""

    allocation: Allocation
    served: ServedPool
    config: JobConfig
    secrets: Mapping[str, str] = field(default_factory=dict)  # for the job's folder, by name
    first: bool = True  # it has not been tried before
    experiment_id: int | None = None
    context_size: int = 0  # bytes of the experiment's files


class Submissions(BoundService):
    """Submits that are due, and their outcomes."""

    def adopt_cluster(self) -> None:
        """Bind new allocations to the cluster that serves their pool and to the account that their job runs as there
        (once; neither changes afterwards)."""
        by_pool = {served.pool.name: served.cluster for served in self._clusters.pools()}
        query = (
            select(Allocation, func.coalesce(Project.workspace_id, Standalone.workspace_id))
            .outerjoin(Trial, Trial.id == Allocation.trial_id)
            .outerjoin(Experiment, Experiment.id == Trial.experiment_id)
            .outerjoin(Project, Project.id == Experiment.project_id)
            .outerjoin(Standalone, Standalone.task_id == Allocation.task_id)
            .where(Allocation.dispatcher == "", Allocation.ended_at.is_(None))
        )
        accounts: dict[tuple[str, int, int | None], str | None] = {}
        with self._store.transaction() as session:
            unbound = session.execute(query.with_for_update(of=Allocation, skip_locked=True))
            for allocation, workspace_id in unbound:
                if cluster := by_pool.get(allocation.pool):
                    key = (cluster.name, allocation.owner_id, workspace_id)
                    if key not in accounts:
                        accounts[key] = account_on(session, cluster, allocation.owner_id, workspace_id)
                    allocation.dispatcher, allocation.run_as = cluster.name, accounts[key]

    def due(
        self,
        cluster: str,
        limit: int,
        *,
        resting: Collection[str] = (),
        under_way: Collection[str] = (),
        rooms: Mapping[int, int] = MappingProxyType({}),
    ) -> list[str]:
        """Allocations that are due for submission, oldest first; none of the pools in `resting`, nor one of those
        in `under_way`. `rooms`: how many of an experiment, by its number, where not all of them may be."""
        order = (Allocation.created_at, Allocation.trial_id)
        query = (
            select(Allocation.id)
            .outerjoin(Trial, Trial.id == Allocation.trial_id)
            .where(
                Allocation.dispatcher == cluster,
                Allocation.ended_at.is_(None),
                Allocation.submission == SubmissionState.NEW.value,
                Allocation.kill_at.is_(None),
                Allocation.not_before <= now(),
                Allocation.pool.not_in(resting),
                Allocation.id.not_in(under_way),
            )
        )
        if rooms:
            place = func.row_number().over(partition_by=Trial.experiment_id, order_by=order)
            room = case(dict(rooms), value=Trial.experiment_id, else_=limit)
            ranked = query.add_columns(*order, (place <= room).label("has_room")).subquery()
            query = select(ranked.c.id).where(ranked.c.has_room).order_by(ranked.c.created_at, ranked.c.trial_id)
        else:
            query = query.order_by(*order)
        with self._store.autocommit() as session:
            return list(session.scalars(query.limit(limit)))

    def next_due(self, cluster: str, after: dt.datetime) -> dt.datetime | None:
        """When the next allocation becomes due that was in back-off at the moment `after`. (One that was due then and
        waits for something else gains nothing from another check.)"""
        query = select(Allocation.not_before).where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at.is_(None),
            Allocation.submission == SubmissionState.NEW.value,
            Allocation.not_before > after,
        )
        with self._store.autocommit() as session:
            return session.scalar(query.order_by(Allocation.not_before).limit(1))

    def begin_submit(self, allocation_id: str) -> PendingSubmission | None:
        """Commit that a submit is about to happen, before it does. None when it should not happen any more, or not
        now. A job that is larger than its pool is submitted all the same, and refused there, unless the site lets it
        wait (`launch_error: false`)."""
        with self._store.transaction() as session:
            allocation = session.get(Allocation, allocation_id, with_for_update=True)
            if (
                allocation is None
                or allocation.ended_at
                or allocation.kill_at
                or allocation.submission != SubmissionState.NEW
            ):
                return None
            experiment_id, context_size, config, secrets = _job_of(session, allocation)
            served = self._clusters.resolve(allocation.pool, allocation.slots, allocation.dispatcher)
            if not self._settings.launch_error and (why := shortage(served, allocation.slots)):
                allocation.not_before = now() + dt.timedelta(seconds=SHORTAGE_DELAY)
                with _noting(session) as notes:
                    explain(notes, allocation, why, level="WARNING")
                return None
            first = allocation.submit_started_at is None
            allocation.submission = SubmissionState.SUBMITTING.value
            allocation.submit_started_at = now()
            return PendingSubmission(allocation, served, config, secrets, first, experiment_id, context_size)

    def unused_links(self, cluster: Cluster, allocation: Allocation) -> list[str]:
        """Return what of the links to Unix accounts has no effect on a job, a sentence each."""
        with self._store.autocommit() as session:
            of_trial = select(Project.workspace_id).join(Experiment).join(Trial).where(Trial.id == allocation.trial_id)
            of_task = select(Standalone.workspace_id).where(Standalone.task_id == allocation.task_id)
            workspace_id = session.scalar(of_trial if allocation.trial_id is not None else of_task)
            return without_effect(session, cluster, allocation.owner_id, workspace_id, allocation.run_as)

    def remark(self, allocation: Allocation, remarks: Sequence[str]) -> None:
        """Note in the log which of a job's requests are not met, a sentence each."""
        if not remarks:
            return
        with self._store.transaction() as session, _noting(session) as notes:
            for sentence in remarks:
                notes.say(allocation.task_id, sentence, "WARNING", allocation.id)

    def cannot_avoid(self, allocation: Allocation, nodes: Sequence[str], kind: str) -> None:
        """Note in the trial's log that its attempt may be given nodes which it should avoid."""
        text = (
            f"{kind} cannot keep a job off named nodes: it may be given {', '.join(nodes)} again. An administrator can "
            "take a broken node out of service."
        )
        with self._store.transaction() as session:
            log_store.say(session, allocation.task_id, text, "WARNING", allocation.id)

    def submitted(self, allocation_id: str, ref: JobRef) -> None:
        """Note that the scheduler accepted the job."""
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
            if allocation.submission in (SubmissionState.SUBMITTING, SubmissionState.UNKNOWN):
                with _noting(session) as notes:
                    mark_submitted(notes, allocation, ref.job_id, ref.cluster)

    def not_submitted(self, allocation_id: str, delay: float, why: str) -> None:
        """Note that the scheduler declined the job for now; it is submitted again after `delay` seconds."""
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
            if allocation.submission == SubmissionState.SUBMITTING:
                allocation.submission = SubmissionState.NEW.value
                allocation.not_before = now() + dt.timedelta(seconds=delay)
                with _noting(session) as notes:
                    explain(notes, allocation, why, level="WARNING")

    def perhaps_submitted(self, allocation_id: str, why: str) -> None:
        """Note that nobody knows whether the scheduler has the job: search for its token before anything else."""
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
            if allocation.submission == SubmissionState.SUBMITTING:
                allocation.submission = SubmissionState.UNKNOWN.value
                allocation.absent_since = None
                with _noting(session) as notes:
                    explain(
                        notes, allocation, f"It is not known whether the scheduler has the job ({why}); looking for it."
                    )

    def recover(self, cluster: str) -> None:
        """Mark, after a start, what is unknown: a submit that was under way when the last master died has an unknown
        outcome."""
        with self._store.transaction() as session:
            session.execute(
                update(Allocation)
                .where(Allocation.dispatcher == cluster, Allocation.submission == SubmissionState.SUBMITTING.value)
                .values(submission=SubmissionState.UNKNOWN.value, absent_since=None)
            )


def _job_of(session: Session, allocation: Allocation) -> tuple[int | None, int, JobConfig, Mapping[str, str]]:
    """Return the experiment, the size of its files, the configuration, and the secrets of a job."""
    if allocation.trial_id is None:
        return None, 0, *task_spec.job_of(session, allocation)
    of_trial = select(Experiment.id, Experiment.context_size, Experiment.config).join(Trial)
    experiment_id, size, config = session.execute(of_trial.where(Trial.id == allocation.trial_id)).one()
    return experiment_id, size, config, {}


def mark_submitted(notes: log_store.Notes, allocation: Allocation, job_id: str, cluster: str) -> None:
    """Store that the scheduler has the job."""
    allocation.submission = SubmissionState.SUBMITTED.value
    allocation.submitted_at = allocation.submitted_at or now()
    allocation.native_id = allocation.native_id or job_id
    allocation.cluster = allocation.cluster or cluster
    allocation.state = later(AllocationState(allocation.state), AllocationState.ASSIGNED).value
    text = f"Attempt {allocation.attempt} is job {job_id} in pool {allocation.pool}."
    notes.say(allocation.task_id, text, allocation_id=allocation.id)


def explain(
    notes: log_store.Notes, allocation: Allocation, text: str, level: str = "INFO", *, begins: str = ""
) -> None:
    """Write why a job waits to the trial's log, once for each change. `begins`: the beginning of the sentence."""
    if text and text != allocation.explanation:
        allocation.explanation = text
        notes.say(allocation.task_id, f"{begins}{text}", level, allocation.id)


@contextmanager
def _noting(session: Session) -> Iterator[log_store.Notes]:
    notes = log_store.Notes()
    yield notes
    session.flush()
    notes.write(session)
