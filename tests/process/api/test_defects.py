"""Where Determined 0.38.1 does not do what it says, and what this master does instead.

What is not here is shown elsewhere: early stopping in tests/site/e2e/test_published_harness.py, searchers in
tests/unit/search, the rendezvous and the long poll in test_jobs.py, merging and environment variables in
tests/unit/config and tests/process/runtime.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import wait_for

Json = dict[str, Any]


def trial_of(user: Api, job: Job) -> Json:
    found: Json = user.get(f"/api/v1/trials/{job.trial_id}").json["trial"]
    return found


def report(job: Job, steps: int | None, group: str, **values: Any) -> int:
    """As Determined's harness sends it."""
    body: Json = {"trialId": job.trial_id, "trialRunId": 1, "metrics": {"avgMetrics": values}}
    if steps is not None:
        body["stepsCompleted"] = steps
    return job.api.post(f"/api/v1/trials/{job.trial_id}/metrics", {"group": group, "metrics": body}).status


def test_a_training_may_ask_to_be_stopped(user: Api, job: Job) -> None:
    """USER_REQUESTED_STOP is in Determined's client, and its own master knows no such reason."""
    reason = {"reason": "EXITED_REASON_USER_REQUESTED_STOP"}
    assert job.api.post(f"/api/v1/trials/{job.trial_id}/early_exit", reason).status == 200
    job.leave()
    assert trial_of(user, job)["state"] == "STATE_COMPLETED"


def test_a_trial_that_is_stopped_by_the_search_can_be_killed(user: Api, job: Job) -> None:
    """A training that ignores the request to leave would hold its slots for ever."""
    job.lease()
    reason = {"reason": "EXITED_REASON_USER_REQUESTED_STOP"}
    assert job.api.post(f"/api/v1/trials/{job.trial_id}/early_exit", reason).status == 200
    assert trial_of(user, job)["state"] == "STATE_STOPPING_COMPLETED"
    assert user.post(f"/api/v1/experiments/{job.experiment_id}/kill").status == 200
    wait_for(lambda: trial_of(user, job)["endTime"], "the end of the trial")


def test_a_report_that_comes_again_counts_once(user: Api, job: Job) -> None:
    for loss in (0.5, 0.5, 0.5000000001, 7.0):  # the same, noise in the last digit, and another value
        assert report(job, 1, "validation", loss=loss) == 200
    assert report(job, 1, "validation", loss=0.5, accuracy=0.9) == 200
    summary = trial_of(user, job)["summaryMetrics"]["validation_metrics"]
    assert (summary["loss"]["count"], summary["loss"]["max"], summary["accuracy"]["count"]) == (1, 0.5, 1)


def test_samples_of_the_machine_are_all_kept(user: Api, job: Job) -> None:
    """The harness sends them without a step; two nodes send theirs at the same one."""
    for value in (1.0, 2.0, 3.0):
        assert report(job, None, "cpu", **{"node-a": {"cpu_util_simple": value}}) == 200
    (batch,) = user.lines(f"/api/v1/trials/{job.trial_id}/profiler/metrics", **{"labels.name": "cpu_util_simple"})
    assert batch["batch"]["values"] == [1.0, 2.0, 3.0]


def test_lines_that_come_again_are_kept_once(user: Api, job: Job) -> None:
    def line(text: str, time: str) -> Json:
        return {"taskId": job.task_id, "log": text, "timestamp": time, "rankId": 0, "stdtype": "stdout"}

    fine = [line("a", "2026-01-02T03:04:05.000001Z"), line("a", "2026-01-02T03:04:05.000001Z")]
    coarse = [line("b", "2026-01-02T03:04:05Z")]
    for batch in (fine, fine, coarse, coarse, [*fine, line("c", "2026-01-02T03:04:05.000002Z")]):
        assert job.api.post("/api/v1/task/logs", {"logs": batch}).status == 200
    lines = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", limit=100)]
    assert [text for text in lines if len(text) == 1] == ["a", "a", "b", "b", "a", "a", "c"]


def test_logs_are_taken_from_whom_they_should_be(anonymous: Api, job: Job) -> None:
    entry = {"task_id": job.task_id, "log": "x", "timestamp": dt.datetime.now(dt.UTC).isoformat()}
    assert anonymous.post("/task-logs", [entry]).status == 401


def test_a_metric_that_is_no_number_leaves_the_experiment_alone(user: Api, job: Job) -> None:
    assert report(job, 1, "validation", loss="NaN") == 200
    state = user.get(f"/api/v1/experiments/{job.experiment_id}").json["experiment"]["state"]
    assert state not in ("STATE_ERROR", "STATE_STOPPING_ERROR")
