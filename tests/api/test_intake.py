"""Measurements that share transactions with those of other jobs count as those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.api.test_reports import reports, trial
from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services.allocations.job_reports import ReportAnswer
from trainmaster.master.services.allocations.metric_batches import Sent, _Gathering, is_plain, take_together
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
    straggling = Sent(first.allocation_id, 2, [first.training(3, loss=3.0)])
    going_on = Sent(second.allocation_id, 2, [second.training(4, loss=4.0)])
    answers = take_together(Store(engine), [straggling, going_on])
    (taken,) = (answer for answer in answers if answer is not None)
    assert taken.acked == 2
    for attempt, sent, answer in zip((first, second), (straggling, going_on), answers, strict=True):
        if answer is None:
            assert attempt.send(sent.records, first=2).json["acked"] == 2
    loss = trial(user, job)["summaryMetrics"]["avg_metrics"]["loss"]
    assert (loss["count"], loss["sum"], loss["max"]) == (4, 10.0, 4.0)


def test_who_waits_for_another_builds_on_what_it_has_done(user: Api, engine: Engine, job: Job) -> None:
    assert job.lease().status == 200
    assert job.send([job.training(1, loss=1.0)]).status == 200
    second, third = job.training(2, loss=2.0), job.training(3, loss=3.0)
    with ThreadPoolExecutor(1) as threads:
        with Store(engine).raw_cursor() as cursor:
            _Gathering(cursor, [Sent(job.allocation_id, 2, [second])]).take()
            again = threads.submit(take_together, Store(engine), [Sent(job.allocation_id, 2, [second, third])])
            wait_for(lambda: waiters(engine), "the other to wait for a lock")
        assert again.result() == [ReportAnswer(acked=3, preempt=None, gone=False)]
    loss = trial(user, job)["summaryMetrics"]["avg_metrics"]["loss"]
    assert (loss["count"], loss["sum"], loss["last"]) == (3, 6.0, 3.0)
    assert [report["totalBatches"] for report in reports(user, job, "training")] == [1, 2, 3]


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


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "progress", "progress": 0.5},
        {"group": "validation"},
        {"group": "gpu"},
        {"group": "a.b"},
        {"group": ""},
        {"steps_completed": "7"},
        {"steps_completed": 0},
        {"steps_completed": True},
        {"steps_completed": 2**31},
        {"metrics": [1]},
        {"metrics": {"": 1}},
        {"metrics": {"loss": "NaN"}},
        {"metrics": {"loss": float("inf")}},
        {"metrics": {"loss": 2**60}},
        {"metrics": {"loss": True}},
        {"batch_metrics": [{"loss": 1}]},
        {"unknown": 1},
    ],
)
def test_whatever_may_lead_to_more_goes_the_ordinary_way(record: Json) -> None:
    plain = {"t": 1.0, "kind": "metrics", "group": "training", "steps_completed": 7, "metrics": {"loss": 1.5, "n": 3}}
    assert is_plain([plain, plain])
    assert not is_plain([plain, {**plain, **record}])
    assert not is_plain([])
