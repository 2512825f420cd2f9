"""Trials that the search pauses: their checkpoints, and what is reported to the search."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.searches import search_events
from trainmaster.master.db.tables import Allocation, Checkpoint, Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.experiment import Activate, Pause
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.search import ExitReason, Search
from trainmaster.master.services.clock import now
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.removal import checkpoints as removal
from trainmaster.master.values.storage import StorageRef

CONFIG = """
name: x
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: single, metric: loss}
max_restarts: 0
"""
ASHA = {
    "name": "asha", "metric": "loss", "time_metric": "epochs", "divisor": 2, "max_time": 4, "num_rungs": 2,
    "max_trials": 4, "max_concurrent_trials": 1,
}  # fmt: skip


class Played:
    """A search whose jobs are played."""

    def __init__(self, attempts: Attempts) -> None:
        self.attempts = attempts
        config = parse_experiment(CONFIG).to_json() | {"searcher": ASHA}
        self.number = attempts.experiment(config, searcher_type="asha")
        with self.open() as orchestrator:
            orchestrator.begin()

    def open(self) -> Any:
        return self.attempts.master.experiment_lock.hold(self.number)

    def trial(self, number: int) -> Trial:
        with self.attempts.store.autocommit() as session:
            query = select(Trial).where(Trial.experiment_id == self.number).order_by(Trial.id)
            return list(session.scalars(query))[number]

    def row(self, orchestrator: ExperimentOrchestrator, number: int) -> Trial:
        query = select(Trial).where(Trial.experiment_id == self.number).order_by(Trial.id)
        return list(orchestrator.session.scalars(query))[number]

    def run(self, number: int) -> None:
        """Let its job begin: one that has not is withdrawn, and has nobody to ask."""
        begun = update(Allocation).where(Allocation.trial_id == self.trial(number).id, Allocation.leased_at.is_(None))
        with self.attempts.store.transaction() as session:
            session.execute(begun.values(leased_at=now(), lease_job="1", native_id="1", submission="SUBMITTED"))

    def report(self, number: int, epochs: int, loss: float) -> None:
        self.run(number)
        with self.open() as orchestrator:
            orchestrator.validated(self.row(orchestrator, number), {"loss": loss, "epochs": epochs}, epochs)

    def leave(self, number: int, outcome: OutcomeKind = OutcomeKind.PREEMPTED, **facts: Any) -> None:
        self.run(number)
        with self.open() as orchestrator:
            trial = self.row(orchestrator, number)
            query = select(Allocation).where(Allocation.trial_id == trial.id, Allocation.ended_at.is_(None))
            allocation = orchestrator.session.scalars(query).one()
            orchestrator.allocation_ended(allocation, trials.AllocationEnded(outcome, "it left", **facts))

    def save(self, number: int) -> uuid.UUID:
        key = uuid.uuid4()
        with self.attempts.store.transaction() as session:
            trial = session.get_one(Trial, self.trial(number).id)
            row = Checkpoint(uuid=key, trial_id=trial.id, experiment_id=self.number, task_id=trial.task_id)
            row.report_time, row.state, row.steps_completed, row.resources = now(), "COMPLETED", 2, {}
            row.ckpt_metadata, row.storage = {}, StorageRef({"type": "shared_fs", "host_path": "/tmp"})
            session.add(row)
            session.flush()
            trial.latest_checkpoint = key
        return key

    def log(self, number: int) -> str:
        return "\n".join(self.attempts.log(self.trial(number).task_id))


@pytest.fixture
def played(attempts: Attempts) -> Played:
    return Played(attempts)


def test_paused_trial_waits_and_its_checkpoint_is_needed(played: Played) -> None:
    played.report(0, 2, 3.0)
    key = played.save(0)
    trial = played.trial(0)
    assert (trial.state, trial.search_pause) == ("PAUSED", "paused")
    played.leave(0)
    assert (played.trial(0).attempts, played.trial(1).state) == (1, "ACTIVE")
    with played.attempts.store.transaction() as session:
        assert removal.needed(session, [key]) == {key}


def test_persons_pause_leaves_the_searchs_alone(played: Played) -> None:
    played.report(0, 2, 3.0)
    played.leave(0)
    with played.open() as orchestrator:
        orchestrator.experiment_event(Pause())
    assert [played.trial(n).state for n in (0, 1)] == ["PAUSED", "PAUSED"]
    with played.open() as orchestrator:
        orchestrator.experiment_event(Activate())
    assert [(played.trial(n).state, played.trial(n).search_pause) for n in (0, 1)] == [
        ("PAUSED", "paused"),
        ("ACTIVE", ""),
    ]


@pytest.mark.parametrize("times", [1, 2])
def test_trial_whose_checkpoint_is_gone_begins_again_once(played: Played, times: int) -> None:
    played.report(0, 2, 1.0)
    played.save(0)
    played.leave(0)
    with played.attempts.store.transaction() as session:
        row = session.get_one(Trial, played.trial(0).id)
        row.latest_checkpoint, row.begun_anew = None, times - 1
    played.report(1, 2, 3.0)  # now the first is among the best half
    trial = played.trial(0)
    if times == 1:
        assert (trial.state, trial.attempts, trial.begun_anew) == ("ACTIVE", 2, 1)
        assert "Its checkpoint is gone: it begins again, this once." in played.log(0)
    else:
        assert (trial.state, trial.attempts) == ("ERROR", 2)
        assert "its checkpoint is gone for the second time" in trial.reason


def test_job_that_is_still_leaving_is_followed_by_the_next(played: Played) -> None:
    played.report(0, 2, 1.0)
    played.report(1, 2, 3.0)
    trial = played.trial(0)
    assert (trial.state, trial.search_pause, trial.attempts) == ("ACTIVE", "resumed", 1)
    played.save(0)
    played.leave(0)
    trial = played.trial(0)
    assert (trial.state, trial.search_pause, trial.attempts, trial.begun_anew) == ("ACTIVE", "", 2, 0)


@pytest.mark.parametrize("memory", [False, True])
def test_failure_for_want_of_memory_is_told_to_the_search(
    played: Played, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ExitReason] = []
    early = Search.exited_early

    def watched(self: Search, key: str, reason: ExitReason, **spending: float) -> Any:
        told.append(reason)
        return early(self, key, reason, **spending)

    monkeypatch.setattr(Search, "exited_early", watched)
    played.leave(0, OutcomeKind.FAILED, out_of_memory=memory)
    assert told == [ExitReason.OUT_OF_MEMORY if memory else ExitReason.ERRORED]
    assert played.trial(0).state == "ERROR"


def test_what_a_trial_has_used_is_stored_with_its_events(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "sees_spending", True)
    with played.open() as orchestrator:
        monkeypatch.setattr(type(orchestrator.search._method), "sees_spending", True)
    hour_ago = update(Allocation).where(Allocation.trial_id == played.trial(0).id)
    with played.attempts.store.transaction() as session:
        session.execute(hour_ago.values(leased_at=now() - timedelta(hours=1), slots=2))
    played.report(0, 1, 3.0)
    with played.attempts.store.transaction() as session:
        query = select(search_events.c.slot_seconds, search_events.c.at)
        ((seconds, at),) = session.execute(query.where(search_events.c.experiment_id == played.number)).all()
    assert seconds == pytest.approx(7200, abs=60)
    assert at == pytest.approx(now().timestamp(), abs=60)
