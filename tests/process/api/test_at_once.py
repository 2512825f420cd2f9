"""Jobs that the scheduler starts together ask for their leases together, and end together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, config, jobs_of
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services.orchestration.experiment_orchestrator import PROPAGATION_BATCH

COUNT = 12


@pytest.fixture
def jobs(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> list[Job]:
    searcher = {"name": "random", "metric": "loss", "max_trials": COUNT, "max_concurrent_trials": COUNT}
    return jobs_of(master, user, experiment(config(searcher=searcher)))


def at_once(jobs: Sequence[Job], ask: Callable[[Job], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(ask, jobs))


def log_of(user: Api, job: Job) -> list[str]:
    lines = user.get(f"/api/v1/tasks/{job.task_id}/logs?limit=100").content.decode().splitlines()
    return [json.loads(line)["result"]["log"].strip() for line in lines]


def test_each_gets_its_own_work_and_every_end_counts(user: Api, jobs: list[Job]) -> None:
    def lease(job: Job) -> Answer:
        return job.lease(f"job-{job.trial_id}", run_id="one", fetches_context=True)

    def double(job: Job) -> Answer:
        return job.lease("another", run_id="two", fetches_context=True)

    def leave(job: Job) -> Answer:
        records = [{"t": 1.5, "line": f"the last line of {job.trial_id}"}]
        body: dict[str, Any] = {"job_id": f"job-{job.trial_id}", "exit_code": 0, "node_rank": 0, "spool": {"log-0": 1}}
        body["reports"] = [{"stream": "log-0", "first": 1, "records": records}]
        return job.api.post(f"/api/x1/allocations/{job.allocation_id}/exit", body)

    for _ in range(2):  # whose answer is lost asks again
        answers = at_once(jobs, lease)
        assert [answer.status for answer in answers] == [200] * COUNT
        assert [answer.json["trial"]["id"] for answer in answers] == [job.trial_id for job in jobs]
    assert [answer.status for answer in at_once(jobs, double)] == [409] * COUNT
    for _ in range(2):
        answers = at_once(jobs, leave)
        assert [(answer.status, answer.json) for answer in answers] == [(200, {"acked": {"log-0": 1}})] * COUNT
    path = f"/api/v1/experiments/{jobs[0].experiment_id}"
    wait_for(lambda: user.get(path).json["experiment"]["state"] == "STATE_COMPLETED", "the experiment's end")
    for job in jobs:
        found = log_of(user, job)
        assert found.count(f"the last line of {job.trial_id}") == 1
        assert sum("runs on node-a" in line for line in found) == 1


def test_forged_lease_is_refused_and_others_are_served(jobs: list[Job]) -> None:
    forged = jobs[0].api.token[:-4] + "0000"
    jobs[0].api = Api(jobs[0].api.url, forged)
    jobs[1].api = jobs[2].api  # a good token, of another attempt
    answers = at_once(jobs, lambda job: job.lease(run_id="one", fetches_context=True))
    assert [answer.status for answer in answers] == [401, 403, *[200] * (COUNT - 2)]


def test_one_kill_request_ends_trials_beyond_one_transaction(user: Api, experiment: Callable[..., int]) -> None:
    count = PROPAGATION_BATCH * 2 + 1
    searcher = {"name": "random", "metric": "loss", "max_trials": count, "max_concurrent_trials": count}
    path = f"/api/v1/experiments/{experiment(config(searcher=searcher))}"
    assert user.post(f"{path}/kill").status == 200
    wait_for(lambda: user.get(path).json["experiment"]["state"] == "STATE_CANCELED", "the end of all its trials")
    trials = user.get(f"{path}/trials?limit=1000").json["trials"]
    assert [trial["state"] for trial in trials] == ["STATE_CANCELED"] * count
