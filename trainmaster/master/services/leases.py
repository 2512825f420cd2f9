"""The lease: which job, and which run of it, may do an attempt's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobState
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Node, Trial, User
from trainmaster.master.lifecycle.allocation import later
from trainmaster.master.lifecycle.states import AllocationState, Submission
from trainmaster.master.services import archives, jobspec, logs, taskspec
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.errors import Conflict, NotFound
from trainmaster.master.services.sightings import DOUBLES
from trainmaster.master.services.store import Store, wake

Json = dict[str, Any]
STARTED_AGAIN = "The scheduler lost the job's first run and started the job again."


@dataclass(frozen=True)
class LeaseRequest:
    """What the runtime of one node says of itself. `run_id`: this process and no other, whatever its job's number."""

    job_id: str
    run_id: str
    node_rank: int
    num_nodes: int
    node_name: str
    slot_ids: Sequence[int]
    addresses: Sequence[str]


def lease(store: Store, allocation_id: str, request: LeaseRequest, slot_types: Mapping[str, str]) -> Json:
    """Bind the allocation to the first job that asks, and each of its nodes to the first run there; returns its work.
    Asking again with the same `run_id` changes nothing. `slot_types`: by pool.

    Raises Conflict for any other job, for another run of the same job, and for an attempt that is over: that job must
    leave.
    """
    with store.transaction() as session:
        allocation = session.get(Allocation, allocation_id, with_for_update=True)
        if allocation is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        if allocation.ended_at is not None or allocation.kill_at is not None:
            raise Conflict(f"The attempt {allocation_id} is over; job {request.job_id} has nothing to do.")
        if allocation.lease_job not in (None, request.job_id):
            raise Conflict(
                f"Job {allocation.lease_job} already runs the attempt {allocation_id}; "
                f"job {request.job_id} is a double."
            )
        if allocation.lease_job is None and request.job_id in (allocation.observed or {}).get(DOUBLES, ()):
            raise Conflict(f"Job {request.job_id} is a double of job {allocation.native_id} and is being removed.")
        node = session.get(Node, (allocation_id, request.node_rank))
        if node is None or node.run_id == request.run_id:
            return _grant(session, allocation, node, request, slot_types.get(allocation.pool, "cpu"))
        _judge_as_lost(session, allocation, request)
    raise Conflict(
        f"Job {request.job_id} was started again by its scheduler; the attempt {allocation_id} ends with its first run."
    )


def _grant(session: Session, allocation: Allocation, node: Node | None, request: LeaseRequest, slot_type: str) -> Json:
    if allocation.lease_job is None:
        # Of two jobs under one token the scheduler's listing may have shown us the other one: this is the one to end.
        allocation.lease_job = allocation.native_id = request.job_id
        allocation.leased_at = now()
    # Presenting the token proves that the submit happened, whatever the call that made it said.
    allocation.submission = Submission.SUBMITTED.value
    allocation.num_nodes = request.num_nodes
    allocation.heartbeat_at = now()
    allocation.absent_since = None
    if node is None:
        session.add(
            Node(
                allocation_id=allocation.id,
                node_rank=request.node_rank,
                run_id=request.run_id,
                name=request.node_name,
                slot_ids=list(request.slot_ids),
                addresses=list(request.addresses),
            )
        )
    joined = 1
    if request.num_nodes > 1:
        here = select(func.count()).select_from(Node).where(Node.allocation_id == allocation.id)
        joined = session.scalar(here) or 0
    state = AllocationState.RUNNING if joined >= request.num_nodes else AllocationState.STARTING
    allocation.state = later(AllocationState(allocation.state), state).value
    if allocation.trial_id is None:
        work = taskspec.work_for(session, allocation, slot_type)
    else:
        work = _work_of_trial(session, allocation, slot_type)
    if node is None:
        nodes = f" (node {joined} of {request.num_nodes})" if request.num_nodes > 1 else ""
        logs.say(
            session,
            allocation.task_id,
            f"Attempt {allocation.attempt} runs on {request.node_name} as job {request.job_id}{nodes}.",
            allocation_id=allocation.id,
        )
    wake(session, f"allocation:{allocation.id}")
    return work


def _work_of_trial(session: Session, allocation: Allocation, slot_type: str) -> Json:
    found = session.execute(
        select(Trial, Experiment, User.username)
        .join(Experiment, Experiment.id == Trial.experiment_id)
        .join(User, User.id == allocation.owner_id)
        .where(Trial.id == allocation.trial_id)
    ).first()
    if found is None:
        raise NotFound(f"The trial of the attempt {allocation.id} has been deleted.")
    trial, experiment, owner = found
    work: Json = jobspec.work_for(experiment, trial, allocation, slot_type, owner)
    work["trial"]["steps_completed"] = _steps_at(session, trial)
    work["context"] = archives.small(session, experiment.id, experiment.context_size)
    return work


def _judge_as_lost(session: Session, allocation: Allocation, request: LeaseRequest) -> None:
    """A second run of a job under its number: a requeue, or a controller that forgot the first run and killed it.
    Either way the first run is over, and if it left no word, this is the only news of that."""
    if str(request.node_rank) in allocation.exits or allocation.observed_state == JobState.PREEMPTED:
        return
    allocation.observed_state = JobState.PREEMPTED.value
    allocation.observed = {**(allocation.observed or {}), "text": STARTED_AGAIN, "ended_seen_at": epoch(now())}
    logs.say(session, allocation.task_id, STARTED_AGAIN, "WARNING", allocation.id)


def _steps_at(session: Session, trial: Trial) -> int:
    if trial.latest_checkpoint is None:
        return 0
    checkpoint = session.get(Checkpoint, trial.latest_checkpoint)
    return checkpoint.steps_completed if checkpoint else 0
