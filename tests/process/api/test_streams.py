"""Streams of newline-delimited JSON: logs that are followed, filtered and cut, and metrics."""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import wait_for

BASE = 1_700_000_000.0


def line(number: int, **fields: Any) -> dict[str, Any]:
    return {"t": BASE + number, "stdtype": "stdout", "level": "INFO", "rank": 0, "line": f"line {number}", **fields}


@pytest.fixture
def written(job: Job) -> Job:
    """Twenty lines; 5, 10, 15 are errors on stderr, 7 is of rank 3."""
    special = {n: {"level": "ERROR", "stdtype": "stderr"} for n in (5, 10, 15)} | {7: {"rank": 3}}
    records = [line(n, **special.get(n, {})) for n in range(1, 21)]
    assert job.send(records, stream="log-0").json["acked"] == 20
    return job


def numbers(user: Api, job: Job, **query: Any) -> list[int]:
    found = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", **query)]
    return [int(text.split()[1]) for text in found if text.startswith("line ")]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, list(range(1, 21))),
        ({"sources": "task", "limit": 3}, [1, 2, 3]),
        ({"sources": "task", "orderBy": "ORDER_BY_DESC", "limit": 3}, [20, 19, 18]),
        ({"levels": "LOG_LEVEL_ERROR"}, [5, 10, 15]),
        ({"levels": ["LOG_LEVEL_ERROR", "CRITICAL"], "orderBy": "ORDER_BY_DESC"}, [15, 10, 5]),
        ({"stdtypes": "stderr"}, [5, 10, 15]),
        ({"rankIds": 3}, [7]),
        ({"rankIds": -2}, []),
        ({"agentIds": "node-a", "limit": 2}, [1, 2]),
        ({"agentIds": "node-b"}, []),
        ({"sources": "task", "searchText": "LINE 1", "limit": 2}, [1, 10]),
        ({"searchText": "^line [34]$", "enableRegex": True}, [3, 4]),
        ({"searchText": "%"}, []),
        ({"timestampAfter": "2023-11-14T22:13:38.500Z"}, [19, 20]),
        ({"timestampBefore": "2023-11-14T22:13:22Z"}, [1]),
    ],
    ids=repr,
)
def test_filters(user: Api, written: Job, query: dict[str, Any], shown: list[int]) -> None:
    assert numbers(user, written, **query) == shown
    assert numbers(user, written, allocationIds=written.allocation_id, **query) == shown


def test_lines_without_a_rank_and_with_a_nul(user: Api, job: Job) -> None:
    assert job.send([line(1), line(2, rank=None), line(3, line="line 3 Logs\0Can")], stream="log-0").status == 200
    assert numbers(user, job, rankIds=-1) == [2]
    assert numbers(user, job, rankIds=[-1, 0]) == [1, 2, 3]
    shown = list(user.lines(f"/api/v1/tasks/{job.task_id}/logs", sources="task", rankIds=0))
    assert shown[1]["log"] == "line 3 Logs\0Can"
    assert shown[1]["message"].endswith("line 3 Logs\0Can\n")
    sent = {"taskId": job.task_id, "log": "line 4 \0!\n", "rankId": 1}
    assert job.api.post("/api/v1/task/logs", {"logs": [sent]}).status == 200
    (found,) = user.lines(f"/api/v1/tasks/{job.task_id}/logs", rankIds=1)
    assert found["log"] == "line 4 \0!"
    for odd in ({**sent, "log": "\ud800"}, {**sent, "source": "\0"}):
        assert job.api.post("/api/v1/task/logs", {"logs": [odd]}).status == 400


def test_both_ways_to_a_trials_log_lead_to_the_same_lines(user: Api, written: Job) -> None:
    # The master's own lines come when they come.
    by_trial = list(user.lines(f"/api/v1/trials/{written.trial_id}/logs", sources="task"))
    by_task = list(user.lines(f"/api/v1/tasks/{written.task_id}/logs", sources="task"))
    assert [{**entry, "trialId": written.trial_id} for entry in by_task] == by_trial
    entry = next(entry for entry in by_task if entry["log"] == "line 7")
    assert entry["message"] == "[2023-11-14T22:13:27.000Z] [node-a] || INFO: [rank=3] line 7\n"
    assert entry["level"] == "LOG_LEVEL_INFO"
    assert entry["timestamp"] == "2023-11-14T22:13:27.000Z"


def test_a_search_that_is_no_regular_expression_is_refused(user: Api, written: Job) -> None:
    answer = user.get(f"/api/v1/trials/{written.trial_id}/logs", searchText="(", enableRegex=True)
    assert answer.status == 400
    assert "regular expression" in answer.sentence


def test_logs_of_nothing_are_not_found(user: Api) -> None:
    assert user.get("/api/v1/trials/99999999/logs").status == 404
    assert user.get("/api/v1/tasks/none/logs").status == 404


def test_followed_log_shows_new_lines_and_ends_with_trial(user: Api, job: Job) -> None:
    seen: dict[str, float] = {}
    first, over = threading.Event(), threading.Event()

    def follow() -> None:
        for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", follow=True):
            seen[entry["log"]] = time.monotonic()
            first.set()
        over.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert first.wait(60)
    delays: list[float] = []
    for number in range(1, 6):
        sent = time.monotonic()
        assert job.send([line(number)], stream="log-0").status == 200
        delays.append(wait_for(lambda at=f"line {number}": seen.get(at), "the line", every=0.01) - sent)  # type: ignore[misc]
    assert not over.is_set()
    assert statistics.median(delays) < 2.0, "lines come only when somebody looks again, which is every 5 s"
    job.leave()
    assert over.wait(60), "the stream goes on although the trial is over"
    thread.join()
    assert [text for text in seen if text.startswith("line")] == [f"line {number}" for number in range(1, 6)]


def test_following_with_a_limit_ends_at_the_limit(user: Api, written: Job) -> None:
    assert numbers(user, written, follow=True, limit=2, sources="task") == [1, 2]


def test_metrics_are_streamed_by_trial_and_group(user: Api, job: Job) -> None:
    reports = [job.training(n, loss=1.0 / n) for n in range(1, 251)] + [job.validation(250, loss=0.5)]
    reports.append({**job.training(10, memory=3), "group": "custom"})
    assert job.send(reports).status == 200

    def read(name: str, **query: Any) -> list[dict[str, Any]]:
        found = user.lines(f"/api/v1/trials/metrics/{name}", trialIds=[job.trial_id], **query)
        return [report for message in found for report in message["metrics"]]

    training = read("training_metrics")
    assert [report["totalBatches"] for report in training] == list(range(1, 251))
    assert training[3]["metrics"] == {"avg_metrics": {"loss": 0.25}}
    assert training[3]["group"] == "training"
    assert [report["metrics"] for report in read("validation_metrics")] == [{"validation_metrics": {"loss": 0.5}}]
    assert [report["metrics"] for report in read("trial_metrics", group="custom")] == [{"avg_metrics": {"memory": 3}}]
    assert len(read("trial_metrics")) == 252


def test_a_stream_is_one_json_object_a_line(user: Api, written: Job) -> None:
    answer = user.get(f"/api/v1/trials/{written.trial_id}/logs")
    assert answer.content.endswith(b"\n")
    for text in answer.content.splitlines():
        assert list(json.loads(text)) == ["result"]
