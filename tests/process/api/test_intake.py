"""Measurements that share transactions with those of other jobs count as those that do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from tests.process.api.test_reports import reports, trial
from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of
from tests.support.bound import bind
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services.batches import CannotBatch, single
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.records import ReportAnswer
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.store import Store

Json = dict[str, Any]
SEARCHER = {"name": "random", "metric": "loss", "max_trials": 8, "max_concurrent_trials": 8}


@pytest.fixture
def jobs(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> list[Job]:
    found = jobs_of(master, user, experiment(config(searcher=SEARCHER)))
    for job in found:
        assert job.lease().status == 200
    return found


def measured(job: Job, number: int) -> list[Json]:
    """A few records of one training; in every fifth batch the training goes back by some steps."""
    start = number * 10 - (30 if number % 5 == 4 else 0)
    training = [job.training(start + n + 1, loss=1 / (start + n + 1), lr=n) for n in range(10)]
    return [*training, job._metrics("attention", start + 10, {"entropy": 0.5 * number})]


def summary(user: Api, job: Job) -> Json:
    found = trial(user, job)
    return {"summary": found["summaryMetrics"], "batches": found["totalBatchesProcessed"]}


def test_jobs_that_report_at_once_lose_and_double_nothing(user: Api, jobs: Sequence[Job]) -> None:
    def report(job: Job) -> None:
        for number in range(20):
            records = measured(job, number)
            before = job.sent.get("core", 0)
            for _ in range(2 if number % 3 == 0 else 1):  # the answer was lost, and the records come again
                answer = job.send(records, first=before + 1)
                assert answer.json == {"acked": before + len(records), "preempt": None, "gone": False}

    with ThreadPoolExecutor(len(jobs)) as threads:
        list(threads.map(report, jobs))
    alone, *together = jobs
    first = summary(user, alone)
    assert first["summary"]["avg_metrics"]["loss"]["count"] == len(reports(user, alone, "training"))
    for job in together:
        assert summary(user, job) == first
        assert [r["metrics"] for r in reports(user, job, "training")] == [
            r["metrics"] for r in reports(user, alone, "training")
        ]


def test_the_sums_are_those_of_the_ordinary_way(user: Api, jobs: Sequence[Job]) -> None:
    plain, ordinary = jobs[:2]
    for number in range(12):
        plain.send(measured(plain, number))
        ordinary.send([*measured(ordinary, number), {"t": 1.0, "kind": "progress", "progress": 0.5}])
    assert summary(user, plain) == summary(user, ordinary)
    for group in ("training", "attention"):
        both = [[(r["totalBatches"], r["metrics"]) for r in reports(user, job, group)] for job in (plain, ordinary)]
        assert both[0] == both[1]


def test_a_job_hears_that_it_is_to_leave(user: Api, job: Job) -> None:
    assert job.lease().status == 200
    assert job.send([job.training(1, loss=1)]).json["preempt"] is None
    assert user.post(f"/api/v1/experiments/{job.experiment_id}/pause", {}).status == 200
    heard = job.send([job.training(2, loss=1)]).json
    assert heard["acked"] == 2
    assert heard["preempt"] is not None or heard["gone"]


def test_attempts_of_one_trial_share_no_transaction(master: MasterProcess, user: Api, engine: Engine, job: Job) -> None:
    """The first one's job is a straggler that nobody could end: its sums must not be lost under the other's."""
    first, second = job, followed(master, user, job)
    straggling = sent(first, first.training(3, loss=3.0))
    going_on = sent(second, second.training(4, loss=4.0))
    outcomes = bind(Store(engine)).report_calls.take_reports([straggling, going_on], wait=False)
    (taken,) = (outcome for outcome in outcomes if isinstance(outcome, ReportAnswer))
    assert taken.acked == 2
    for call, outcome in zip((straggling, going_on), outcomes, strict=True):
        if isinstance(outcome, CannotBatch):
            assert single(bind(Store(engine)).report_calls.take_reports([call])).acked == 2
    loss = trial(user, job)["summaryMetrics"]["avg_metrics"]["loss"]
    assert (loss["count"], loss["sum"], loss["max"]) == (4, 10.0, 4.0)


def test_report_that_waited_for_lock_counts_records_once(user: Api, engine: Engine, job: Job) -> None:
    assert job.lease().status == 200
    assert job.send([job.training(1, loss=1.0)]).status == 200
    second, third = job.training(2, loss=2.0), job.training(3, loss=3.0)
    held = Slow(engine)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(bind(held).report_calls.take_reports, [sent(job, second)])
        assert held.stored.wait(30)
        (left,) = bind(Store(engine)).report_calls.take_reports([sent(job, second, third)], wait=False)
        assert isinstance(left, CannotBatch)
        again = threads.submit(bind(Store(engine)).report_calls.take_reports, [sent(job, second, third)])
        wait_for(lambda: waiters(engine), "the other to wait for a lock")
        held.go.set()
        assert one.result() == [ReportAnswer(acked=2, preempt=None, gone=False)]
        assert again.result() == [ReportAnswer(acked=3, preempt=None, gone=False)]
    loss = trial(user, job)["summaryMetrics"]["avg_metrics"]["loss"]
    assert (loss["count"], loss["sum"], loss["last"]) == (3, 6.0, 3.0)
    assert [report["totalBatches"] for report in reports(user, job, "training")] == [1, 2, 3]


def sent(job: Job, *records: Json) -> ReportCall:
    """Records from the second one on."""
    return ReportCall(job.allocation_id, StreamBatch("core", 2, records))


class Slow(Store):
    """Waits before each commit until it is let go."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.stored, self.go = threading.Event(), threading.Event()

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        with super().transaction() as session:
            yield session
            self.stored.set()
            assert self.go.wait(30)


def waiters(engine: Engine) -> int:
    """How many wait for a lock on a stream."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%report_streams%'"
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


def followed(master: MasterProcess, user: Api, job: Job) -> Job:
    """The trial's second attempt; each of the two has reported a batch."""
    assert job.lease().status == 200
    assert job.send([job.training(1, loss=1.0)]).status == 200
    path = f"/api/v1/experiments/{job.experiment_id}"
    user.post(f"{path}/pause")
    job.leave(preempted={"reason": "pause"}, preempt_acked=True)
    user.post(f"{path}/activate")
    (second,) = jobs_of(master, user, job.experiment_id, attempt=2)
    assert second.lease("played-2").status == 200
    assert second.send([second.training(2, loss=2.0)]).status == 200
    return second


def test_only_plain_new_metrics_share_a_batch(engine: Engine, jobs: Sequence[Job]) -> None:
    """Decisions of the search, what has to be merged, and what does not fit."""
    plain, decided, merged, odd, *others = jobs
    for job in jobs:
        assert job.send([job.training(1, loss=1.0)]).status == 200
    calls = [
        sent(plain, plain.training(2, loss="NaN", text="word")),
        sent(decided, decided.validation(2, loss=2.0)),
        sent(merged, merged.training(1, more=2.0)),
        sent(odd, odd._metrics("a.b", 2, {"loss": 1.0})),
        sent(others[0], others[0].training(2, loss=2.0), {"t": 1.0, "kind": "progress", "progress": 0.5}),
    ]
    outcomes = bind(Store(engine)).report_calls.take_reports(calls, wait=False)
    assert [type(outcome) for outcome in outcomes] == [ReportAnswer, CannotBatch, CannotBatch, CannotBatch, CannotBatch]
