"""Leases: decides which job, and which run of it, may do an attempt's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import ARRAY, Row, Text, any_, bindparam, case, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobState
from trainmaster.master.db.tables import (
    Allocation,
    AllocationNode,
    Checkpoint,
    Experiment,
    ModelDefinition,
    ReportStream,
    Trial,
    User,
)
from trainmaster.master.lifecycle.allocation import later
from trainmaster.master.lifecycle.states import AllocationState, SubmissionState
from trainmaster.master.services.access.identity import Identities
from trainmaster.master.services.batches import CannotBatch
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.files import archives
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration.task_orchestrator import TENSORBOARD
from trainmaster.master.services.scheduling import job_spec, task_spec
from trainmaster.master.services.store import wake
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.stored import Json

_LIMITS_OF_REPORTS = ("metric_name", "report_values", "checkpoint_files")  # that the job checks before it sends
STARTED_AGAIN = "The scheduler lost the job's first run and started the job again."


@dataclass(frozen=True)
class LeaseRequest:
    """What the runtime of one node says of itself. `run_id`: this process and no other, whatever its job's number."""

    allocation_id: str
    job_id: str
    run_id: str
    node_rank: int
    num_nodes: int
    node_name: str
    slot_ids: Sequence[int]
    addresses: Sequence[str]  # as the job says
    peer: str = ""  # where it speaks from, as seen here
    image_digest: str = ""  # of its container's image


class Leases(BoundService):
    """Leases of attempts to jobs."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._identities = Identities(master)

    def lease(
        self,
        requests: Sequence[LeaseRequest],
        slot_types: Mapping[str, str],
        *,
        wait: bool = True,
    ) -> list[Json | Exception]:
        """Bind allocations to the first job that asks, and each of their nodes to the first run there. Asking again
        with the same `run_id` changes nothing. `slot_types`: by pool.

        The outcomes are in the order of the requests, which are for different allocations: the work; Invalid for what
        cannot be a node of the job; Conflict for any other job, for another run of the same job, and for an attempt
        that is over: that job must leave; NotFound. Without `wait` those are left `CannotBatch` whose allocations
        somebody else holds."""
        asked = {request.allocation_id: request for request in requests}
        outcomes: dict[str, Json | Exception] = {}
        notes = log_store.Notes()
        with self._store.transaction() as session:
            query = _LEASE.with_for_update(of=Allocation, skip_locked=not wait)
            rows = {row.Allocation.id: row for row in session.execute(query, {"ids": list(asked)})}
            for name, row in rows.items():
                if refusal := _refusal(row.Allocation, asked[name]):
                    outcomes[name] = Conflict(refusal)
                elif refusal := _miscount(row.Allocation, asked[name]):
                    outcomes[name] = Invalid(refusal)
            joining = [asked[name] for name in rows if name not in outcomes]
            new = _join(session, joining)
            streams: list[Json] = []
            runs = _runs(session, [request for request in joining if request.allocation_id not in new])
            for request in joining:
                name, row = request.allocation_id, rows[request.allocation_id]
                if name in new or runs[name] == request.run_id:
                    joined = _grant(session, row.Allocation, request)
                    outcomes[name] = self._work(session, row, slot_types.get(row.Allocation.pool, "cpu"))
                    if name in new and row.Trial is not None:
                        streams.append({"allocation_id": name, "stream": "core", "acked": 0})
                    if name in new:
                        _log_start(notes, row.Allocation, request, joined)
                else:
                    _judge_as_lost(notes, row.Allocation, request)
                    outcomes[name] = Conflict(
                        f"Job {request.job_id} was started again by its scheduler; the attempt {name} ends with its "
                        "first run."
                    )
            if streams:  # so that the first reports need not be taken in by themselves
                session.connection().execute(_NEW_STREAMS, sorted(streams, key=itemgetter("allocation_id")))
            notes.write(session)
        for request in requests:
            name = request.allocation_id
            if name not in outcomes:
                outcomes[name] = NotFound(f"There is no allocation {name}.") if wait else CannotBatch()
        return [outcomes[request.allocation_id] for request in requests]

    def _work(self, session: Session, row: Row[Any], slot_type: str) -> Json:
        allocation: Allocation = row.Allocation
        if allocation.trial_id is None:
            work = task_spec.work_for(session, allocation, slot_type)
        elif row.Trial is None:
            raise NotFound(f"The trial of the attempt {allocation.id} has been deleted.")
        else:
            work = job_spec.work_for(row.Experiment, row.Trial, allocation, slot_type, row.username)
            work["trial"]["steps_completed"] = row.steps or 0
            work["files"] = archives.listed(row.archive)
            work["limits"] = {key: getattr(self._settings.limits, key) for key in _LIMITS_OF_REPORTS}
        # Empty for a TensorBoard: no code of its owner runs in it.
        session_token = (
            "" if work["task_type"] == TENSORBOARD else self._identities.owner_token(allocation.id, allocation.token)
        )
        return {**work, "owner_token": session_token}


def _refusal(allocation: Allocation, request: LeaseRequest) -> str:
    """Why the job must leave; empty when it need not."""
    if allocation.ended_at is not None or allocation.kill_at is not None:
        return f"The attempt {allocation.id} is over; job {request.job_id} has nothing to do."
    if allocation.lease_job not in (None, request.job_id):
        return f"Job {allocation.lease_job} already runs the attempt {allocation.id}; job {request.job_id} is a double."
    if allocation.lease_job is None and request.job_id in (allocation.observed or ObservedJob()).doubles:
        return f"Job {request.job_id} is a double of job {allocation.native_id} and is being removed."
    return ""


def most_nodes(allocation: Allocation) -> int:
    """How many nodes an attempt's job can have: as many as its first lease says; before it as its scheduler says;
    before that has been seen there is a slot for each of them."""
    if allocation.leased_at is not None:
        return allocation.num_nodes
    return len((allocation.observed or ObservedJob()).nodes) or max(allocation.slots, 1)


def _miscount(allocation: Allocation, request: LeaseRequest) -> str:
    """Why this cannot be one of the job's nodes; empty when it can. How many there are its scheduler says; before that
    has been seen there is a slot for each of them; and the first lease decides."""
    if allocation.leased_at is not None:
        if request.num_nodes != allocation.num_nodes:
            return f"Job {request.job_id} has {allocation.num_nodes} nodes, not {request.num_nodes}."
    else:
        most = most_nodes(allocation)
        if request.num_nodes > most:
            return f"Job {request.job_id} cannot have {request.num_nodes} nodes: it was given {most}."
    if request.node_rank >= request.num_nodes:
        return f"A job of {request.num_nodes} nodes has none of rank {request.node_rank}."
    return ""


def _join(session: Session, requests: Sequence[LeaseRequest]) -> set[str]:
    """Return the attempts on whose nodes these runs are the first."""
    rows = [
        {
            "allocation_id": request.allocation_id,
            "node_rank": request.node_rank,
            "run_id": request.run_id,
            "name": request.node_name,
            "slot_ids": list(request.slot_ids),
            "addresses": list(request.addresses),
            "peer": request.peer,
            "image_digest": request.image_digest,
        }
        for request in requests
    ]
    return set(session.connection().scalars(_NEW_NODES, rows)) if rows else set()


def _runs(session: Session, requests: Sequence[LeaseRequest]) -> dict[str, str]:
    """By attempt, the first run on the node that asks again."""
    if not requests:
        return {}
    nodes = [(request.allocation_id, request.node_rank) for request in requests]
    query = select(AllocationNode.allocation_id, AllocationNode.run_id).where(
        tuple_(AllocationNode.allocation_id, AllocationNode.node_rank).in_(nodes)
    )
    return {row.allocation_id: row.run_id for row in session.execute(query)}


def _grant(session: Session, allocation: Allocation, request: LeaseRequest) -> int:
    """How many nodes have joined by now."""
    if allocation.lease_job is None:
        # Of two jobs under one token the scheduler's listing may have shown us the other one: this is the one to end.
        allocation.lease_job = allocation.native_id = request.job_id
        allocation.leased_at = now()
    # Presenting the token proves that the submit happened, whatever the call that made it said.
    allocation.submission = SubmissionState.SUBMITTED.value
    allocation.num_nodes = request.num_nodes
    allocation.heartbeat_at = now()
    allocation.absent_since = None
    joined = 1
    if request.num_nodes > 1:
        here = select(func.count()).select_from(AllocationNode).where(AllocationNode.allocation_id == allocation.id)
        joined = session.scalar(here) or 0
    state = AllocationState.RUNNING if joined >= request.num_nodes else AllocationState.STARTING
    allocation.state = later(AllocationState(allocation.state), state).value
    wake(session, f"allocation:{allocation.id}")
    return joined


def _log_start(notes: log_store.Notes, allocation: Allocation, request: LeaseRequest, joined: int) -> None:
    nodes = f" (node {joined} of {request.num_nodes})" if request.num_nodes > 1 else ""
    # Scripts count how often a trial has run by the beginning of this sentence.
    who = "New trial runner: attempt" if allocation.trial_id is not None else "Attempt"
    text = f"{who} {allocation.attempt} runs on {request.node_name} as job {request.job_id}{nodes}."
    notes.say(allocation.task_id, text, allocation_id=allocation.id)


def _judge_as_lost(notes: log_store.Notes, allocation: Allocation, request: LeaseRequest) -> None:
    """Note a second run of a job under its number: a requeue, or a controller that forgot the first run and killed it.
    Either way the first run is over, and if it left no word, this is the only news of that."""
    if request.node_rank in allocation.exits or allocation.observed_state == JobState.PREEMPTED:
        return
    allocation.observed_state = JobState.PREEMPTED.value
    allocation.observed = (allocation.observed or ObservedJob()).updated(text=STARTED_AGAIN, ended_seen_at=epoch(now()))
    notes.say(allocation.task_id, STARTED_AGAIN, "WARNING", allocation.id)


_NEW_STREAMS = insert(ReportStream).on_conflict_do_nothing()
_NEW_NODES = insert(AllocationNode).on_conflict_do_nothing().returning(AllocationNode.allocation_id)
# Attempts, with what their work is made of where it is a trial's.
_LEASE = (
    select(
        Allocation,
        Trial,
        Experiment,
        User.username,
        Checkpoint.steps_completed.label("steps"),
        case((Experiment.context_size <= archives.SMALL, ModelDefinition.archive)).label("archive"),
    )
    .join(User, User.id == Allocation.owner_id)
    .outerjoin(Trial, Trial.id == Allocation.trial_id)
    .outerjoin(Experiment, Experiment.id == Trial.experiment_id)
    .outerjoin(Checkpoint, Checkpoint.uuid == Trial.latest_checkpoint)
    .outerjoin(ModelDefinition, ModelDefinition.experiment_id == Experiment.id)
    .where(Allocation.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .order_by(Allocation.id)
)
