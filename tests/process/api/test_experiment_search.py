"""Finding experiments by conditions, and the names of what they have measured."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config

Json = dict[str, Any]


@pytest.fixture(scope="module")
def project(user: Api) -> int:
    made = user.post("/api/v1/workspaces", {"name": f"search {uuid.uuid4().hex[:8]}"}).json["workspace"]["id"]
    answer = user.post(f"/api/v1/workspaces/{made}/projects", {"name": "found"})
    return int(answer.json["project"]["id"])


@pytest.fixture(scope="module")
def three(user: Api, project: int) -> Iterator[list[int]]:
    numbers = []
    for index, name in enumerate(("delta", "alpha", "echo")):
        text = config(name=name, labels=["all", name[0]], hyperparameters={"depth": index, "kind": {"word": name}})
        body = {"config": text, "activate": False, "projectId": project}
        numbers.append(user.post("/api/v1/experiments", body).json["experiment"]["id"])
    yield numbers
    for number in numbers:
        user.post(f"/api/v1/experiments/{number}/kill")


def field(name: str, operator: str, value: Any, kind: str = "COLUMN_TYPE_TEXT") -> Json:
    return {"kind": "field", "columnName": name, "operator": operator, "value": value, "type": kind}


def found(user: Api, project: int, *fields: Json, conjunction: str = "and", **body: Any) -> list[int]:
    group = {"kind": "group", "conjunction": conjunction, "children": list(fields)}
    wanted = json.dumps({"filterGroup": group, "showArchived": True})
    answer = user.post("/api/v1/experiments-search", {"projectId": project, "filter": wanted, **body})
    assert answer.status == 200, answer.content
    return [entry["experiment"]["id"] for entry in answer.json["experiments"]]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ([], [0, 1, 2]),
        ([field("name", "=", "alpha")], [1]),
        ([field("name", "!=", "alpha")], [0, 2]),
        ([field("name", "contains", "L")], [0, 1]),
        ([field("name", "notContains", "l")], [2]),
        ([field("tags", "contains", "d")], [0]),
        ([field("tags", "notContains", "d")], [1, 2]),
        ([field("tags", "isEmpty", None)], []),
        ([field("state", "=", "STATE_PAUSED")], [0, 1, 2]),
        ([field("state", "!=", "PAUSED")], []),
        ([field("description", "isEmpty", None)], [0, 1, 2]),
        ([field("description", "notEmpty", None)], []),
        ([field("numTrials", ">=", 1), field("numTrials", "<", 2)], [0, 1, 2]),
        ([field("startTime", "<", "2020-01-01T00:00:00Z")], []),
        ([field("startTime", ">", "2020-01-01T00:00:00Z")], [0, 1, 2]),
        ([field("user", "=", "determined")], [0, 1, 2]),
        ([field("searcherMetricsVal", ">", 0)], []),
        ([field("validation.loss.min", "<", 1)], []),
        ([field("name", "=", None)], [0, 1, 2]),
        ([field("archived", "=", "false")], [0, 1, 2]),
        ([{"kind": "group", "conjunction": "or", "children": [field("id", "=", 0), field("name", "=", "echo")]}], [2]),
    ],
    ids=repr,
)
def test_conditions(user: Api, project: int, three: list[int], fields: list[Json], shown: list[int]) -> None:
    assert found(user, project, *fields, sort="id=asc") == [three[index] for index in shown]


def test_orders_and_pages(user: Api, project: int, three: list[int]) -> None:
    assert found(user, project) == three[::-1], "the newest first"
    assert found(user, project, sort="name=asc") == [three[1], three[0], three[2]]
    assert found(user, project, sort="state=asc,id=desc") == three[::-1]
    assert found(user, project, sort="id=asc", limit=1, offset=1) == [three[1]]
    assert found(user, project, sort="id=asc", limit=-1) == three
    answer = user.post("/api/v1/experiments-search", {"projectId": project, "limit": -2}).json
    assert (answer["experiments"], answer["pagination"]["total"]) == ([], 3)
    assert found(
        user, project, field("id", "=", three[0]), field("id", "=", three[1]), conjunction="or", sort="id"
    ) == [
        three[0],
        three[1],
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"filter": "{"},
        {"filter": "3"},
        {"filter": "[" * 100_000},
        {"filter": json.dumps({"filterGroup": {"conjunction": "perhaps", "children": [field("id", "=", 1)]}})},
        {"filter": json.dumps({"filterGroup": {"children": 3}})},
        {"filter": json.dumps({"filterGroup": {"children": [field("colour", "=", 1)]}})},
        {"filter": json.dumps({"filterGroup": {"children": [field("id", "~", 1)]}})},
        {"filter": json.dumps({"filterGroup": {"children": [field("id", "=", "x")]}})},
        {"filter": json.dumps({"filterGroup": {"children": [field("startTime", "=", "soon")]}})},
        {"filter": json.dumps({"filterGroup": {"children": [field("name", "=", "\0")]}})},
        {"sort": "colour=asc"},
        {"sort": "id=sideways"},
        {"offset": 100_000},
    ],
    ids=lambda body: str(body)[:70],
)
def test_invalid_search_is_rejected(user: Api, three: list[int], body: Json) -> None:
    answer = user.post("/api/v1/experiments-search", body)
    assert answer.status == 400, answer.content
    assert answer.sentence


def test_experiments_are_found_by_their_metrics(user: Api, job: Job) -> None:
    job.send([job.training(1, speed=3.0), job.validation(1, loss=0.25), job.validation(2, loss=0.5)])
    number = job.experiment_id
    for name, operator, value, hit in (
        ("validation.loss.min", "<=", 0.25, True),
        ("validation.loss.last", "=", 0.5, True),
        ("validation.loss.max", "<", 0.5, False),
        ("training.speed.mean", ">", 2, True),
        ("searcherMetricsVal", "=", 0.25, True),
        ("hp.none", "=", 3, False),
    ):
        assert (found(user, 1, field(name, operator, value), field("id", "=", number)) == [number]) is hit, name
    lines = user.lines("/api/v1/experiments/metrics-stream/metric-names", ids=number, periodSeconds=1)
    empty = {"searcherMetrics": ["loss"], "trainingMetrics": [], "validationMetrics": [], "metricNames": []}
    assert next(lines) == empty
    names = next(lines)
    assert names["searcherMetrics"] == ["loss"]
    assert (names["trainingMetrics"], names["validationMetrics"]) == (["speed"], ["loss"])
    assert {"group": "training", "name": "speed"} in names["metricNames"]
    job.send([job.validation(3, accuracy=0.25)])
    assert next(lines) == {  # each name once
        "searcherMetrics": ["loss"],
        "trainingMetrics": [],
        "validationMetrics": ["accuracy"],
        "metricNames": [{"group": "validation", "name": "accuracy"}],
    }
    history = user.get(f"/api/v1/experiments/{number}/validation-history").json["validationHistory"]
    assert [(one["trialId"], one["searcherMetric"]) for one in history] == [(job.trial_id, 0.25), (job.trial_id, 0.5)]
    assert user.get("/api/v1/experiments/metrics-stream/metric-names", ids=99999999).status == 404


def test_bounds_of_ids(user: Api, project: int, three: list[int]) -> None:
    def ids(**query: Any) -> list[int]:
        query = {key.replace("_", ".", 1): value for key, value in query.items()}
        return [e["id"] for e in user.get("/api/v1/experiments", projectId=project, **query).json["experiments"]]

    assert ids(experimentIdFilter_gt=three[0]) == three[1:]
    assert ids(experimentIdFilter_gte=three[1], experimentIdFilter_lt=three[2]) == [three[1]]
    assert ids(experimentIdFilter_lte=three[1]) == three[:2]
    assert ids(experimentIdFilter_notIn=three[1]) == [three[0], three[2]]
