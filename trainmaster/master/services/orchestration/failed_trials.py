"""Reads how trials of an experiment failed, for the decisions of `lifecycle.failures`."""

from __future__ import annotations

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.lifecycle import failures
from trainmaster.master.lifecycle.failures import FailedTrial
from trainmaster.master.lifecycle.states import OutcomeKind, State

MOST = 1000  # failed trials that are compared
_FAULTS = (OutcomeKind.FAILED.value, OutcomeKind.REJECTED.value)


def reason_of(session: Session, row: Experiment) -> str:
    """Return the reason of an experiment whose search ends because its trials failed."""
    session.flush()
    query = select(Trial.id, Trial.reason).where(Trial.experiment_id == row.id, Trial.state == State.ERROR.value)
    rows = session.execute(query.order_by(Trial.id).limit(MOST))
    return failures.reason_of([FailedTrial(trial.id, trial.reason) for trial in rows])


def blown(session: Session, row: Experiment, allocation: Allocation) -> str:
    """Why the search of an experiment is to be paused now that an attempt, which is closed, has failed; empty where it
    is not. Only first attempts of trials count."""
    limit = row.config.failure_fuse
    first = allocation.attempt == 1 and allocation.outcome in _FAULTS
    if not first or row.unmanaged or row.state != State.ACTIVE or not 0 < limit < max(row.num_trials, _most(row)):
        return ""
    session.flush()
    of_experiment = Trial.experiment_id == row.id
    works = or_(Trial.total_batches > 0, Trial.checkpoint_count > 0, Trial.state == State.COMPLETED.value)
    if session.scalar(select(Trial.id).where(of_experiment, works).limit(1)) is not None:
        return ""
    query = select(Allocation.trial_id, Allocation.exit_text, Allocation.leased_at, Allocation.ended_at)
    query = query.join(Trial, Trial.id == Allocation.trial_id).where(of_experiment)
    query = query.where(Allocation.attempt == 1, Allocation.outcome.in_(_FAULTS))
    rows = session.execute(query.order_by(Allocation.ended_at, Allocation.trial_id).limit(limit + 1)).all()
    seconds = [(one.ended_at - one.leased_at).total_seconds() if one.leased_at else 0.0 for one in rows]
    ended = [FailedTrial(one.trial_id, one.exit_text, each) for one, each in zip(rows, seconds, strict=True)]
    return failures.blown(ended, limit)


def _most(row: Experiment) -> int:
    """How many trials the search has at most, where its configuration says so."""
    return row.config.searcher.max_trials or 0
