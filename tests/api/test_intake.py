"""Measurements that share transactions with those of other jobs count as those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.http import Api
from tests.api.jobs import Job, config, jobs_of
from tests.api.test_reports import reports, trial
from tests.e2e.master import MasterProcess
from trainmaster.master.services.intake import is_plain

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
