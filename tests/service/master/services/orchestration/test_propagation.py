"""A pause, cancel or kill of more trials than fit into one transaction reaches them all, in steps."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlalchemy import ColumnElement, select, update

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.lifecycle.allocation import Outcome
from trainmaster.master.lifecycle.states import OutcomeKind, State
from trainmaster.master.services.orchestration import experiment_orchestrator
from trainmaster.master.services.retries import Retries

CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: random, metric: loss, max_trials: 9, max_concurrent_trials: 7}
"""
GONE = Outcome(OutcomeKind.PREEMPTED, "It was preempted")


@pytest.fixture
def search(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> int:
    """A search with seven trials, all of whose jobs run; three are told at once."""
    monkeypatch.setattr(experiment_orchestrator, "PROPAGATION_BATCH", 3)
    number = attempts.experiment(parse_experiment(CONFIG).to_json())
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.begin()
    with attempts.store.transaction() as session:
        session.execute(update(Allocation).where(_of(number)).values(submission="SUBMITTED", lease_job="1"))
    return number


def _of(number: int) -> ColumnElement[bool]:
    return Allocation.trial_id.in_(select(Trial.id).where(Trial.experiment_id == number))


def command(attempts: Attempts, number: int, event: lifecycle.Event) -> None:
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.experiment_event(event)


def states(attempts: Attempts, number: int) -> Counter[str]:
    with attempts.store.autocommit() as session:
        return Counter(session.scalars(select(Trial.state).where(Trial.experiment_id == number)))


def live(attempts: Attempts, number: int) -> list[Allocation]:
    query = select(Allocation).where(_of(number), Allocation.ended_at.is_(None)).order_by(Allocation.trial_id)
    with attempts.store.autocommit() as session:
        return list(session.scalars(query))


def experiment(attempts: Attempts, number: int) -> Experiment:
    with attempts.store.autocommit() as session:
        return session.get_one(Experiment, number)


def step(attempts: Attempts) -> None:
    attempts.master.propagation.propagate(Retries())


def test_pause_reaches_experiment_at_once_and_trials_in_steps(attempts: Attempts, search: int) -> None:
    command(attempts, search, lifecycle.Pause())
    assert experiment(attempts, search).state == "PAUSED"
    assert states(attempts, search) == {"PAUSED": 3, "ACTIVE": 4}
    lagging = live(attempts, search)[-1]
    attempts.master.endings.end_together(search, {lagging.id: GONE})
    assert len(live(attempts, search)) == 6, "one that ends before it is told does not start again"
    step(attempts)
    assert states(attempts, search) == {"PAUSED": 7}
    assert not experiment(attempts, search).propagation_due
    assert {one.preempt_reason for one in live(attempts, search)} == {"the experiment was paused"}
    step(attempts)
    command(attempts, search, lifecycle.Activate())
    step(attempts)
    step(attempts)
    assert states(attempts, search) == {"ACTIVE": 7}
    assert len(live(attempts, search)) == 7


def test_activation_keeps_pause_from_trials_not_yet_told(attempts: Attempts, search: int) -> None:
    command(attempts, search, lifecycle.Pause())
    command(attempts, search, lifecycle.Activate())
    assert states(attempts, search) == {"ACTIVE": 7}
    assert not experiment(attempts, search).propagation_due
    assert sum(one.preempt_at is not None for one in live(attempts, search)) == 3


def test_a_kill_overtakes_a_cancel_and_ends_all(attempts: Attempts, search: int) -> None:
    command(attempts, search, lifecycle.Cancel())
    command(attempts, search, lifecycle.Kill())
    while experiment(attempts, search).propagation_due:
        step(attempts)
    assert states(attempts, search) == {"STOPPING_KILLED": 7}
    assert all(one.kill_at for one in live(attempts, search))
    attempts.master.endings.end_together(
        search, {one.id: Outcome(OutcomeKind.STOPPED, "It is gone") for one in live(attempts, search)}
    )
    row = experiment(attempts, search)
    assert (row.state, row.live_trials, row.num_trials) == (State.CANCELED, 0, 7)


def test_kill_of_unsubmitted_trials_ends_them_in_steps(attempts: Attempts, search: int) -> None:
    with attempts.store.transaction() as session:
        session.execute(update(Allocation).where(_of(search)).values(submission="NEW", lease_job=None))
    command(attempts, search, lifecycle.Kill())
    assert states(attempts, search) == {"CANCELED": 3, "ACTIVE": 4}
    assert experiment(attempts, search).live_trials == 4
    while experiment(attempts, search).propagation_due:
        step(attempts)
    row = experiment(attempts, search)
    assert (row.state, row.reason, row.live_trials) == (State.CANCELED, "the experiment was killed", 0)
    assert states(attempts, search) == {"CANCELED": 7}
