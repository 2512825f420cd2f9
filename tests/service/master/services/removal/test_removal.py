"""A deleted experiment goes in steps that others get in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import Engine, Table, func, select, update

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Experiment, Task, Trial, metrics, task_logs
from trainmaster.master.services.batches import single
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.records import ReportAnswer
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.removal import removal
from trainmaster.master.services.removal.removal import ExperimentRemoval
from trainmaster.master.services.retries import Retries

CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: random, metric: loss, max_trials: 9}
"""


@pytest.fixture
def attempts(engine: Engine) -> Attempts:
    """In a database of their own: all rows are counted."""
    return Attempts(engine)


def experiment(attempts: Attempts, trials: int) -> tuple[int, list[str]]:
    """An experiment of so many trials, and the ids of their attempts."""
    number = attempts.experiment(parse_experiment(CONFIG).to_json())
    rows = [{"id": f"{number}-{n}", "hparams": {}, "seed": 1, "live": True} for n in range(trials)]
    attempts.many(number, rows)
    return number, attempts.live(number)


def report(attempts: Attempts, name: str, first: int, count: int) -> None:
    numbers = range(first, first + count)
    measured = [
        {"t": 1.7e9 + n, "kind": "metrics", "group": "training", "steps_completed": n, "metrics": {"loss": 0.5}}
        for n in numbers
    ]
    lines = [{"t": 1.7e9 + n, "line": f"step {n}"} for n in numbers]
    for stream, records in (("core", measured), ("log-0", lines)):
        call = ReportCall(name, StreamBatch(stream, first, records))
        answer = single(attempts.master.report_calls.take_reports([call]))
        assert isinstance(answer, ReportAnswer)
        assert answer.acked == first + count - 1


def rows(attempts: Attempts, *tables: type[Experiment | Trial | Task] | Table) -> list[int]:
    with attempts.store.autocommit() as session:
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step for each experiment and turn."""
    limits: Mapping[str, float] = {"TRIALS_AT_ONCE": 2, "ROWS_AT_ONCE": 7, "LONGEST_TURN": 0.0, "LONGEST_REST": 0.0}
    for name, value in limits.items():
        monkeypatch.setattr(removal, name, value)


def in_steps(attempts: Attempts, removed: ExperimentRemoval, between: Callable[[int], None]) -> int:
    """Goes on until nothing is left to be removed; how many times that took."""
    step = 0
    with attempts.store.autocommit() as session:
        doomed = select(Experiment.id).where(Experiment.state == "DELETING")
        while session.scalars(doomed).all():
            removed.go_on()
            step += 1
            between(step)
    return step


@pytest.mark.usefixtures("small_steps")
def test_large_experiment_is_removed_in_steps_between_reports(
    attempts: Attempts,
) -> None:
    large, jobs = experiment(attempts, 5)
    for name in jobs:
        report(attempts, name, 1, 10)
    _, (bystander,) = experiment(attempts, 1)
    small, _ = experiment(attempts, 1)
    with attempts.store.transaction() as session:
        session.execute(update(Experiment).where(Experiment.id.in_((large, small))).values(state="DELETING"))
        first = select(Trial.id).where(Trial.experiment_id == large).order_by(Trial.id).limit(1)
        session.execute(update(metrics).where(metrics.c.trial_id.in_(first), metrics.c.steps < 4).values(archived=True))
        session.execute(update(Trial).where(Trial.id.in_(first)).values(attempts=2))
    removed = ExperimentRemoval(attempts.master, Retries())
    seen: list[list[int]] = []

    def between(step: int) -> None:
        report(attempts, bystander, step, 1)
        seen.append(rows(attempts, metrics, task_logs, Trial))
        if step == 3:  # the small one does not wait for the large one
            with attempts.store.autocommit() as session:
                assert set(session.scalars(select(Experiment.id).where(Experiment.state == "DELETING"))) == {large}

    steps = in_steps(attempts, removed, between)
    assert steps > 8
    for (metrics_before, logs_before, _), (metrics_after, logs_after, _) in itertools.pairwise(seen):
        assert metrics_before + 1 - metrics_after <= 7
        assert logs_before + 1 - logs_after <= 7
    assert seen[-1] == [steps, steps, 1]
    assert rows(attempts, Experiment, Task) == [1, 1]
