"""Who reached which rung when, on a search whose jobs are played, against what the searcher said as it decided."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.master import MasterProcess

SEARCHER = {
    "name": "async_halving", "metric": "loss", "time_metric": "epochs", "num_rungs": 2, "divisor": 2,
    "max_time": 4, "max_trials": 4, "max_concurrent_trials": 4,
}  # fmt: skip
SPACE = {"lr": {"type": "double", "minval": 1.0, "maxval": 2.0}}
VIEWER = 5


def race(api: Api, experiment: int, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/api/x1/experiments/{experiment}/rungs{query}")
    assert answer.status == 200, answer.content
    return dict(answer.json)


def events(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@pytest.fixture
def played(master: MasterProcess, user: Api) -> list[Job]:
    """The jobs of four trials, all begun."""
    number = create(user, config(searcher=SEARCHER, hyperparameters=SPACE))
    jobs = jobs_of(master, user, number)
    for at, job in enumerate(jobs):
        assert job.lease(f"played-{at}").status == 200
    return jobs


def report(job: Job, epochs: int, **metrics: Any) -> None:
    job.send([job.validation(epochs * 10, epochs=epochs, **metrics)])


def test_arrivals_in_the_order_of_the_reports(user: Api, played: list[Job]) -> None:
    first, second, third, fourth = played
    number = first.experiment_id
    assert race(user, number)["total"] == 0
    report(first, 1, loss=0.5)
    report(first, 2, loss=0.4)
    report(second, 2, loss=0.6)
    report(third, 3, loss=0.3)
    report(fourth, 2, loss="NaN")
    report(third, 4, loss=0.2)
    found = race(user, number)
    assert (found["metric"], found["smallerIsBetter"], found["timeMetric"]) == ("loss", True, "epochs")
    assert found["brackets"] == [{"units": [2, 4], "trials": 4, "running": 1, "pauses": False}]
    told = [
        (one["trial"], one["rung"], one["value"], one["decision"], one["rank"], one["of"], one["keep"], one["cut"])
        for one in events(found)
    ]
    assert told == [
        (first.trial_id, 0, 0.4, "goes on", 1, 1, 1, 0.4),
        (second.trial_id, 0, 0.6, "stopped", 2, 2, 1, 0.4),
        (third.trial_id, 0, 0.3, "goes on", 1, 3, 1, 0.3),
        (fourth.trial_id, 0, None, "failed", 4, 4, 2, 0.4),
        (third.trial_id, 1, 0.2, "top", 1, 1, 1, None),
    ]
    story = user.get(f"/api/x1/experiments/{number}/story").json["events"]
    stops = {one["id"]: one for one in story if (one["subject"], one["event"]) == ("search", "Stop")}
    for one in events(found):
        if one["decision"] == "goes on":
            assert one["story"] is None
            continue
        stop = stops.pop(one["story"])
        assert (stop["trial"], stop["at"]) == (one["trial"], pytest.approx(one["at"], abs=0.001))
        if one["decision"] == "stopped":
            assert re.search(rf"rank {one['rank']} of {one['of']} on loss, the best {one['keep']} go on", stop["why"])
    assert stops == {}
    assert [one["at"] for one in events(found)] == sorted(one["at"] for one in events(found))
    _in_pieces(user, number, found)
    user.post(f"/api/v1/experiments/{number}/kill")


def test_pauses_and_resumes_are_told_where_they_happened(master: MasterProcess, user: Api) -> None:
    searcher = SEARCHER | {"name": "asha", "max_concurrent_trials": 1}
    number = create(user, config(searcher=searcher, hyperparameters=SPACE))
    for loss in (0.4, 0.5):
        job = jobs_of(master, user, number)[-1]
        assert job.lease(f"paused-{loss}").status == 200
        report(job, 2, loss=loss)
    found = race(user, number)
    assert found["brackets"][0]["pauses"]
    first, second = sorted({one["trial"] for one in events(found)})
    told = [(one["trial"], one["rung"], one["decision"], one["rank"], one["of"], one["keep"]) for one in events(found)]
    assert told == [(first, 0, "paused", 1, 1, 0), (second, 0, "paused", 2, 2, 1), (first, 0, "resumed", 1, 2, 1)]
    story = user.get(f"/api/x1/experiments/{number}/story").json["events"]
    decided = [one for one in story if one["subject"] == "search" and one["event"] in ("Pause", "Resume")]
    assert [(one["story"], one["at"]) for one in events(found)] == [
        (one["id"], pytest.approx(one["at"], abs=0.001)) for one in decided
    ]
    board = user.get(f"/api/x1/experiments/{number}/board?curves=true").json
    rows = {row[0]: dict(zip(board["columns"], row, strict=True)) for row in board["rows"]}
    assert (rows[second]["state"], rows[second]["searchPause"], rows[second]["pauses"]) == ("PAUSED", "paused", 1)
    assert (rows[first]["searchPause"], rows[first]["pauses"]) != ("paused", 0)
    assert rows[second]["why"] == "rung 1 (2 epochs): rank 2 of 2 on loss, the best 1 go on"
    assert board["experiment"]["counts"]["PAUSED_BY_SEARCH"] == 1
    assert board["curves"]["pauses"] == [[20.0], [20.0]]
    head = user.get(f"/api/x1/trials/{second}/board").json["trial"]
    assert (head["searchPause"], head["why"]) == ("paused", rows[second]["why"])
    user.post(f"/api/v1/experiments/{number}/kill")


def _in_pieces(user: Api, number: int, whole: dict[str, Any]) -> None:
    piece = race(user, number, "?after=1&limit=2")
    assert (piece["first"], piece["rows"], piece["total"]) == (2, whole["rows"][1:3], whole["total"])
    assert race(user, number, "?after=1000000")["rows"] == []
    for bad in ("?after=-1", "?limit=0", "?limit=20001", "?after=x", "?limit=1e9"):
        assert user.get(f"/api/x1/experiments/{number}/rungs{bad}").status == 400, bad


def test_race_without_rungs_is_empty_and_unknown_is_not_found(user: Api) -> None:
    number = create(user, activate=False)
    found = race(user, number)
    assert (found["brackets"], found["rows"], found["total"], found["first"]) == ([], [], 0, 1)
    answer = user.get("/api/x1/experiments/999999/rungs")
    assert (answer.status, answer.json["message"]) == (404, "not found: There is no experiment 999999.")
    user.post(f"/api/v1/experiments/{number}/kill")


def test_rungs_are_shown_only_to_workspace_viewers(rbac_admin: Api) -> None:
    workspace, project = workspace_of(rbac_admin)
    number = create(rbac_admin, config(searcher=SEARCHER, hyperparameters=SPACE), projectId=project, activate=False)
    ada, grace = person(rbac_admin), person(rbac_admin)
    give(rbac_admin, VIEWER, ada.id, workspace)
    assert race(ada.api, number)["brackets"][0]["units"] == [2, 4]
    assert grace.api.get(f"/api/x1/experiments/{number}/rungs").status in (403, 404)
    rbac_admin.post(f"/api/v1/experiments/{number}/kill")
