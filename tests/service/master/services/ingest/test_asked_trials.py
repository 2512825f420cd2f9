"""Trials that programs ask for: taken once, free again when their program is silent, and decided on in order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Trial
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.ingest.asked_trials import Told
from trainmaster.master.services.retries import Retries

CONFIG = """
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: asha, metric: loss, time_metric: epochs, divisor: 2, max_time: 4, num_rungs: 2, max_trials: 6,
  max_concurrent_trials: 2, ask_tell: true}
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
"""


@pytest.fixture
def number(attempts: Attempts) -> int:
    number = attempts.experiment(parse_experiment(CONFIG).to_json(), searcher_type="asha")
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.begin()
    return number


def told(trial: int, epoch: int, loss: float) -> Told:
    return Told(trial, epoch, {"loss": loss, "epochs": epoch})


def test_each_trial_is_given_once(attempts: Attempts, number: int) -> None:
    asked = attempts.master.asked_trials
    first = asked.ask(number, 1).trials
    rest = asked.ask(number, 9).trials
    assert len({trial.id for trial in (*first, *rest)}) == 2
    assert asked.ask(number, 9).trials == []


def test_trial_of_a_silent_program_is_free_again(attempts: Attempts, number: int) -> None:
    asked = attempts.master.asked_trials
    one, two = asked.ask(number, 2).trials
    silent: Any = now() - timedelta(seconds=attempts.master.settings.lost_after + 1)
    with attempts.store.transaction() as session:
        session.execute(update(Trial).where(Trial.id == one.id).values(heartbeat_at=silent))
    asked.tell(number, [Told(two.id)])
    attempts.master.unmanaged.give_up_silent(Retries())
    assert [trial.id for trial in asked.ask(number, 9).trials] == [one.id]


def test_reports_of_one_call_are_decided_in_order(attempts: Attempts, number: int) -> None:
    asked = attempts.master.asked_trials
    one, two = asked.ask(number, 2).trials
    assert asked.tell(number, [told(one.id, 1, 0.5), told(two.id, 1, 0.7)]) == ["continue", "continue"]
    assert asked.tell(number, [told(one.id, 2, 0.5), told(two.id, 2, 0.7)]) == ["continue", "pause"]
    assert asked.tell(number, [told(one.id, 2, 9.9)]) == ["continue"], "told before: nothing happens"
    assert asked.tell(number, [told(one.id, 4, 0.4)]) == ["stop"]
    waiting = {trial.id: trial.steps for trial in asked.ask(number, 9).trials}
    assert two.id not in waiting
    assert set(waiting.values()) == {0}


def test_nothing_is_half_told(attempts: Attempts, number: int) -> None:
    asked = attempts.master.asked_trials
    (one,) = asked.ask(number, 1).trials
    with pytest.raises(NotFound, match="has no trial 99999"):
        asked.tell(number, [told(one.id, 1, 0.5), told(99999, 1, 0.5)])
    with pytest.raises(Invalid, match=r"reports\[1\]\.end is 'gone'; it is one of completed, failed"):
        asked.tell(number, [told(one.id, 1, 0.5), Told(one.id, end="gone")])
    with attempts.store.transaction() as session:
        assert session.get_one(Trial, one.id).total_batches == 0
