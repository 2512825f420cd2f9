"""Changing the queue of a scheduler that keeps its own order. `tests/site/e2e/test_docker.py` changes one of ours, and
`tests/site/e2e/test_moves.py` moves jobs between pools."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import config

QUEUE = "/api/v1/job-queues"
Json = dict[str, Any]


def job_of(user: Api, number: int) -> str:
    return str(user.get(f"/api/v1/experiments/{number}").json["experiment"]["jobId"])


def change(user: Api, *updates: Json) -> Answer:
    return user.post(QUEUE, {"updates": list(updates)})


def test_queued_job_shows_how_many_jobs_are_ahead(user: Api, experiment: Callable[..., int]) -> None:
    first, second = job_of(user, experiment()), job_of(user, experiment())
    shown = [one["full"] for one in user.get("/api/v1/job-queues-v2").json["jobs"]]  # others leave the queue meanwhile
    ahead = {one["jobId"]: one["summary"]["jobsAhead"] for one in shown}
    assert 0 <= ahead[first] < ahead[second]


def test_change_of_schedulers_own_order_is_rejected(user: Api, experiment: Callable[..., int]) -> None:
    first, second = job_of(user, experiment()), job_of(user, experiment())
    for wanted in ({"priority": 7}, {"weight": 2.0}, {"aheadOf": second}, {"behindOf": second}):
        answer = change(user, {"jobId": first, **wanted})
        assert (answer.status, "keeps its own order" in answer.sentence) == (400, True), wanted
    assert change(user, {"jobId": first, "resourcePool": "default"}).status == 200


def test_invalid_queue_change_changes_nothing(user: Api, experiment: Callable[..., int]) -> None:
    number = experiment(json.dumps({**json.loads(config()), "resources": {"priority": 40}}))
    job = job_of(user, number)
    before = user.get(f"/api/v1/experiments/{number}").json["experiment"]["config"]
    for status, wanted in (
        (404, {"jobId": str(uuid.uuid4()), "priority": 7}),
        (404, {"jobId": "x", "priority": 7}),
        (400, {"jobId": job, "priority": 100}),
        (400, {"jobId": job, "weight": 0.0}),
        (400, {"jobId": job, "aheadOf": job, "behindOf": job}),
        (404, {"jobId": job, "aheadOf": str(uuid.uuid4())}),
    ):
        assert change(user, {"jobId": job, "resourcePool": "default"}, wanted).status == status, wanted
    assert change(user, {"jobId": job, "resourcePool": "elsewhere"}).status in (400, 404)
    assert user.get(f"/api/v1/experiments/{number}").json["experiment"]["config"] == before
