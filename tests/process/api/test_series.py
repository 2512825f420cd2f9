"""Series for plots, thinned out without losing a spike; and the files of an experiment."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, create


@pytest.fixture
def measured(job: Job) -> Job:
    """A trial with 400 training reports, one of which stands out, and two validations."""
    records = [job.training(n, loss=1000.0 if n == 137 else n / 400, epoch=n / 100) for n in range(1, 401)]
    assert job.send([*records, job.validation(200, loss=0.5), job.validation(400, loss=0.25)]).status == 200
    return job


def points(user: Api, job: Job, **query: Any) -> list[dict[str, Any]]:
    answer = user.get("/api/v1/trials/time-series", trialIds=[job.trial_id], metricNames=["loss"], **query)
    assert answer.status == 200, answer.content
    (trial,) = answer.json["trials"]
    assert trial["trial"]["id"] == job.trial_id
    return [point for group in trial["metrics"] if group["group"] == "training" for point in group["data"]]


def test_a_series_is_thinned_without_losing_a_spike(user: Api, measured: Job) -> None:
    assert len(points(user, measured)) == 400
    few = points(user, measured, maxDatapoints=20)
    assert 10 <= len(few) <= 20
    assert max(point["values"]["loss"] for point in few) == 1000.0
    assert [point["batches"] for point in few] == sorted(point["batches"] for point in few)
    assert few[0]["epoch"] == few[0]["batches"] / 100
    part = points(user, measured, startBatches=100, endBatches=102, group="training")
    assert [point["batches"] for point in part] == [100, 101, 102]
    cut = {"time_series_filter.name": "batches", "time_series_filter.integer_range.gte": 100}
    part = points(user, measured, group="training", **cut, **{"timeSeriesFilter.integerRange.lt": 102})
    assert [point["batches"] for point in part] == [100, 101]
    for other in ({"time_series_filter.name": "epoch"}, {"timeSeriesFilter.doubleRange.gt": 0.5}):
        answer = user.get("/api/v1/trials/time-series", trialIds=[measured.trial_id], metricNames=["loss"], **other)
        assert (answer.status, "timeSeriesFilter" in answer.sentence) == (400, True)


def test_metrics_by_their_whole_names(user: Api, measured: Job) -> None:
    query = {"trialIds": [measured.trial_id], "metricIds": ["validation.loss", "training.epoch"], "maxDatapoints": 4}
    (trial,) = user.get("/api/v1/trials/time-series", **query).json["trials"]
    found = {group["group"]: group for group in trial["metrics"]}
    assert found["validation"]["type"] == "METRIC_TYPE_VALIDATION"
    assert [(p["batches"], p["values"]) for p in found["validation"]["data"]] == [
        (200, {"loss": 0.5}),
        (400, {"loss": 0.25}),
    ]
    assert user.get("/api/v1/trials/time-series", trialIds=[99999999], metricIds=["a.b"]).status == 404
    for wrong in ({"metricIds": ["loss"]}, {"metricType": "METRIC_TYPE_ODD"}, {"maxDatapoints": -1}):
        assert user.get("/api/v1/trials/time-series", **{**query, **wrong}).status == 400


def test_streams_of_an_experiment(user: Api, measured: Job) -> None:
    address = f"/api/v1/experiments/{measured.experiment_id}/metrics-stream"
    query = {"metricName": "loss", "group": "validation", "periodSeconds": 1}
    batches = user.lines(f"{address}/batches", **query)
    assert (next(batches), next(batches)) == ({"batches": []}, {"batches": [200, 400]})
    samples = user.lines(f"{address}/trials-sample", **query)
    assert next(samples) == {"trials": [], "promotedTrials": [], "demotedTrials": []}
    sample = next(samples)
    assert (sample["promotedTrials"], sample["trials"][0]["hparams"]) == ([measured.trial_id], {})
    assert [point["batches"] for point in sample["trials"][0]["data"]] == [200, 400]
    snapshots = user.lines(f"{address}/trials-snapshot", batchesProcessed=190, batchesMargin=10, **query)
    assert next(snapshots) == {"trials": []}
    snapshot = next(snapshots)
    assert snapshot["trials"] == [{"trialId": measured.trial_id, "hparams": {}, "metric": 0.5, "batchesProcessed": 200}]
    measured.send([measured.validation(500, loss=0.1)])
    assert next(batches) == {"batches": [500]}
    (more,) = next(samples)["trials"]  # what is new, and no hyperparameters again
    assert (more["hparams"], [point["batches"] for point in more["data"]]) == (None, [500])
    lines = user.lines(f"{address}/batches", metricName="loss", metricType="METRIC_TYPE_VALIDATION")
    _, old = next(lines), next(lines)
    assert old == {"batches": [200, 400, 500]}
    assert user.get(f"{address}/batches", metricName="loss").status == 400
    assert user.get(f"{address}/batches", group="validation").status == 400
    assert user.get("/api/v1/experiments/99999999/metrics-stream/batches", **query).status == 404


def test_files(user: Api, experiment: Callable[..., int]) -> None:
    files = [
        {"path": "train.py", "type": 48, "content": base64.b64encode(b"print()").decode(), "mtime": "5", "mode": 420},
        {"path": "a/b/c.yaml", "type": 48, "content": base64.b64encode(b"x: 1").decode(), "mtime": "5", "mode": 420},
        {"path": "empty", "type": 53, "content": "", "mtime": "5", "mode": 493},
    ]
    number = create(user, modelDefinition=files, activate=False)
    address = f"/api/v1/experiments/{number}"
    tree = user.get(f"{address}/file_tree").json["files"]
    assert [(node["path"], node["isDir"], node["contentLength"]) for node in tree] == [
        ("a", True, 0), ("empty", True, 0), ("train.py", False, 7),
    ]  # fmt: skip
    assert tree[0]["files"][0]["files"][0]["path"] == "a/b/c.yaml"
    assert tree[0]["files"][0]["name"] == "b"
    shown = user.post(f"{address}/file", {"path": "a/b/c.yaml"}).json["file"]
    assert base64.b64decode(shown) == b"x: 1"
    for path in ("none", "a", "../../etc/passwd"):
        assert user.post(f"{address}/file", {"path": path}).status == 404
    user.post(f"{address}/kill")
    bare = experiment(activate=False)
    assert user.get(f"/api/v1/experiments/{bare}/file_tree").json == {"files": []}
    assert user.get("/api/v1/experiments/99999999/file_tree").status == 404
