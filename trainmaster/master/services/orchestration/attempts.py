"""Steps that attempts of trials and of standalone tasks share: request, preempt, end and close an allocation."""

from __future__ import annotations

import datetime as dt
import uuid

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobState
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Trial, Workspace
from trainmaster.master.lifecycle.allocation import last_line
from trainmaster.master.lifecycle.states import AllocationState, OutcomeKind, SubmissionState
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import Settings
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.store import wake

WITHDRAWN = "It was withdrawn before it was submitted"


def ask_for(
    session: Session,
    settings: Settings,
    *,
    task_id: str,
    attempt: int,
    pool: str,
    slots: int,
    owner_id: int,
    delay: float = 0.0,
    trial_id: int | None = None,
    checkpoints_before: int = 0,
    ready: bool | None = None,
) -> Allocation:
    """Create an attempt, which the controller submits to the scheduler. `delay`: seconds to wait first."""
    allocation = Allocation(
        id=f"{task_id}.{attempt}",
        task_id=task_id,
        trial_id=trial_id,
        token=f"{settings.token_prefix}{uuid.uuid4().hex[:12]}-a{attempt}",
        state=AllocationState.PENDING.value,
        submission=SubmissionState.NEW.value,
        attempt=attempt,
        dispatcher="",  # chosen by the controller from the pool
        pool=pool,
        slots=slots,
        owner_id=owner_id,
        not_before=now() + dt.timedelta(seconds=delay),
        checkpoints_before=checkpoints_before,
        ready=ready,
        exits={},
    )
    session.add(allocation)
    wake(session, "controller")
    return allocation


def keep_workspace(session: Session, experiments: ColumnElement[bool], workspace: Workspace) -> None:
    """Store the workspace in the attempts of experiments that are about to be moved out of it: reports of usage name
    the one in which a job ran. `experiments`: a condition on Experiment."""
    trials = select(Trial.id).join(Experiment, Experiment.id == Trial.experiment_id).where(experiments)
    session.execute(
        update(Allocation)
        .where(Allocation.trial_id.in_(trials), Allocation.workspace_id.is_(None))
        .values(workspace_id=workspace.id, workspace_name=workspace.name)
    )


def ask_to_leave(session: Session, allocation: Allocation, reason: str, timeout: float) -> bool:
    """Preempt an attempt: ask its runtime to leave within `timeout` seconds. True when nothing of it runs: the caller
    should end it instead."""
    if allocation.preempt_at is None:
        allocation.preempt_at = now()
        allocation.preempt_reason = reason
    deadline = now() + dt.timedelta(seconds=timeout)
    allocation.preempt_deadline = min(allocation.preempt_deadline or deadline, deadline)
    wake(session, f"allocation:{allocation.id}")
    return allocation.lease_job is None or allocation.observed_state == JobState.HELD


def condemn(session: Session, allocation: Allocation, reason: str) -> bool:
    """Request the end of an attempt. True when no scheduler has its job: it can be closed at once."""
    if allocation.kill_at is None:
        allocation.kill_at = now()
        allocation.preempt_reason = allocation.preempt_reason or reason
    wake(session, f"allocation:{allocation.id}", "controller")
    if allocation.submission != SubmissionState.NEW:
        return False
    allocation.collected = True
    return True


def log_end(notes: log_store.Notes, allocation: Allocation, outcome: OutcomeKind, text: str) -> None:
    """Write the last line of an attempt to its task's log: call it after all others."""
    line = last_line(outcome, text, allocation.exit_code, ran=allocation.lease_job is not None)
    if line is not None:
        notes.say(allocation.task_id, line[1], line[0], allocation.id)


def close(session: Session, allocation: Allocation, outcome: OutcomeKind, text: str) -> None:
    """Note that an attempt has ended."""
    allocation.state = AllocationState.TERMINATED.value
    allocation.ended_at = now()
    allocation.outcome = outcome.value
    allocation.exit_text = text
    wake(session, f"allocation:{allocation.id}")


def stalled(session: Session, allocation: Allocation) -> int:
    """How many attempts in a row, up to this one, which has ended, reached their time limit without a checkpoint of
    later steps than any before."""
    if not _reached_limit(allocation.outcome, allocation.preempt_reason):
        return 0
    steps = func.max(Checkpoint.steps_completed)
    query = (
        select(Allocation.outcome, Allocation.preempt_reason, steps)
        .outerjoin(Checkpoint, Checkpoint.allocation_id == Allocation.id)
        .where(Allocation.trial_id == allocation.trial_id)
        .group_by(Allocation.id)
        .order_by(Allocation.attempt)
    )
    count, furthest = 0, -1
    for outcome, reason, reached in session.execute(query):
        further = reached is not None and reached > furthest
        count = count + 1 if _reached_limit(outcome, reason) and not further else 0
        furthest = max(furthest, reached if reached is not None else -1)
    return count


def _reached_limit(outcome: str | None, preempt_reason: str | None) -> bool:
    leaves = (OutcomeKind.PREEMPTED, OutcomeKind.STOPPED)
    return outcome == OutcomeKind.WALLTIME or (outcome in leaves and preempt_reason == OutcomeKind.WALLTIME)
