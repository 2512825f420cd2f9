"""Attempts of one experiment that end in one transaction end as they would one after the other."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Allocation, Experiment, Story, Task, Trial
from trainmaster.master.lifecycle.allocation import Outcome
from trainmaster.master.lifecycle.states import OutcomeKind

CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: random, metric: loss, max_trials: 5, max_concurrent_trials: 3}
"""
DONE = Outcome(OutcomeKind.COMPLETED, "It is done")


@pytest.fixture
def search(attempts: Attempts) -> int:
    """A search of five trials, three of which run."""
    number = attempts.experiment(parse_experiment(CONFIG).to_json())
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.begin()
    return number


def live(attempts: Attempts, number: int) -> list[str]:
    query = select(Allocation.id).join(Trial, Trial.id == Allocation.trial_id).where(Trial.experiment_id == number)
    with attempts.store.autocommit() as session:
        return list(session.scalars(query.where(Allocation.ended_at.is_(None)).order_by(Trial.id)))


def test_one_that_has_ended_already_counts_once(attempts: Attempts, search: int) -> None:
    first, second, third = live(attempts, search)
    attempts.master.endings.end_together(search, {first: DONE})
    attempts.master.endings.end_together(search, {first: Outcome(OutcomeKind.FAILED, "Late"), second: DONE})
    assert third in live(attempts, search)
    assert len(live(attempts, search)) == 3, "two others follow those two"
    assert attempts.row(first).outcome == "completed"
    assert sum("Trial ended" in line for line in attempts.log(first.rpartition(".")[0])) == 1


def test_when_all_have_ended_so_has_the_search(attempts: Attempts, search: int) -> None:
    while together := live(attempts, search):
        attempts.master.endings.end_together(search, dict.fromkeys(together, DONE))
    of_trials = select(Trial.state, Trial.attempts, Trial.progress, Trial.end_time, Task.end_time.label("task_end"))
    told = select(Story.event).join(Trial, Trial.id == Story.trial_id).where(Trial.experiment_id == search)
    with attempts.store.transaction() as session:
        experiment = session.get_one(Experiment, search)
        assert (experiment.state, experiment.num_trials, experiment.live_trials) == ("COMPLETED", 5, 0)
        rows = session.execute(of_trials.join(Task, Task.task_id == Trial.task_id).where(Trial.experiment_id == search))
        for row in rows:
            assert (row.state, row.attempts, row.progress) == ("COMPLETED", 1, 1.0)
            assert row.task_end == row.end_time is not None
        assert (
            list(session.scalars(told.order_by(Story.trial_id, Story.id)))
            == [*("Create", "Created", "AllocationEnded")] * 5
        )


def test_one_that_cannot_end_leaves_the_others_as_they_were(attempts: Attempts, search: int) -> None:
    together = live(attempts, search)
    with attempts.store.transaction() as session:
        session.get_one(Trial, attempts.row(together[1]).trial_id).state = "NONSENSE"
    with pytest.raises(ValueError, match="NONSENSE"):
        attempts.master.endings.end_together(search, dict.fromkeys(together, DONE))
    assert live(attempts, search) == together
    attempts.master.endings.end_together(search, {together[0]: DONE, together[2]: DONE})
    assert attempts.row(together[1]).ended_at is None
    assert len(live(attempts, search)) == 3
