"""Runs as a list of their own, what a project's table can show, and what the profiler measured."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.master import MasterProcess, wait_for


@pytest.fixture
def project(user: Api) -> int:
    name = uuid.uuid4().hex
    workspace = user.post("/api/v1/workspaces", {"name": name}).json["workspace"]["id"]
    return int(user.post(f"/api/v1/workspaces/{workspace}/projects", {"name": "p"}).json["project"]["id"])


def filtered(*fields: dict[str, Any], **more: Any) -> str:
    children = [{"kind": "field", "location": "LOCATION_TYPE_RUN", **field} for field in fields]
    return json.dumps({"filterGroup": {"kind": "group", "conjunction": "and", "children": children}, **more})


def found(user: Api, project: int, **body: Any) -> list[dict[str, Any]]:
    answer = user.post("/api/v1/runs", {"projectId": project, **body})
    assert answer.status == 200, answer.content
    return list(answer.json["runs"])


def make(user: Api, project: int, **keys: Any) -> int:
    """A paused experiment; its runs' number."""
    number = create(user, config(**keys), projectId=project, activate=False)
    return int(user.get(f"/api/v1/experiments/{number}/trials").json["trials"][0]["id"])


def search(user: Api, project: int, **keys: Any) -> list[int]:
    """A paused search of two trials."""
    space = {"lr": {"type": "double", "minval": 1.0, "maxval": 2.0}, "net": {"depth": 3}}
    searcher = {"name": "random", "metric": "loss", "max_trials": 2}
    number = create(user, config(searcher=searcher, hyperparameters=space, **keys), projectId=project, activate=False)
    return [trial["id"] for trial in user.get(f"/api/v1/experiments/{number}/trials").json["trials"]]


def test_runs_are_found(user: Api, project: int) -> None:
    one = make(user, project, name="single", labels=["a"])
    two = search(user, project, name="double")
    shown = found(user, project, sort="id=asc")
    assert [run["id"] for run in shown] == [one, *two]
    first, second, _ = shown
    assert (first["experiment"]["name"], first["labels"], first["state"]) == ("single", ["a"], "STATE_PAUSED")
    assert (first["experiment"]["isMultitrial"], second["experiment"]["isMultitrial"]) == (False, True)
    assert second["hyperparameters"]["net"] == {"depth": 3}
    assert first["localId"].endswith(f"-{one}")
    wanted = filtered({"columnName": "hp.net.depth", "operator": "=", "value": 3})
    assert sorted(run["id"] for run in found(user, project, filter=wanted)) == two
    for location in ("LOCATION_TYPE_RUN_HYPERPARAMETERS", "LOCATION_TYPE_HYPERPARAMETERS"):
        wanted = filtered({"columnName": "net.depth", "operator": "=", "value": 3, "location": location})
        assert sorted(run["id"] for run in found(user, project, filter=wanted)) == two
    wanted = filtered({"columnName": "experimentName", "operator": "contains", "value": "sing"})
    assert [run["id"] for run in found(user, project, filter=wanted)] == [one]
    page = user.post("/api/v1/runs", {"projectId": project, "limit": 1, "offset": 1, "sort": "hp.lr=desc"}).json
    assert (len(page["runs"]), page["pagination"]["total"]) == (1, 3)
    counted = user.post("/api/v1/runs", {"projectId": project, "limit": -2}).json
    assert (counted["runs"], counted["pagination"]["total"]) == ([], 3)
    for wrong in ({"filter": "x"}, {"sort": "colour=asc"}, {"filter": filtered({"columnName": "colour", "value": 1})}):
        assert user.post("/api/v1/runs", wrong).status == 400
    user.post("/api/v1/runs/kill", {"runIds": [one, *two], "projectId": project})


def test_run_actions_apply_to_their_experiment(user: Api, project: int) -> None:
    one, two = make(user, project), search(user, project)

    def act(verb: str, **body: Any) -> dict[int, str]:
        answer = user.post(f"/api/v1/runs/{verb}", {"runIds": [one, two[0]], "projectId": project, **body})
        assert answer.status == 200, answer.content
        return {result["id"]: result["error"] for result in answer.json["results"]}

    said = act("resume")
    assert said[one] == ""
    assert said[two[0]] == f"Cannot pause/unpause run '{two[0]}' (part of multi-trial)."
    assert act("pause")[one] == ""
    assert act("kill", runIds=[one, *two]) == {one: "", two[0]: "", two[1]: ""}
    wait_for(lambda: act("archive")[one] == "", "the end of the run, which can then be archived")
    assert one not in [run["id"] for run in found(user, project, filter=filtered())]
    assert one in [run["id"] for run in found(user, project, filter=filtered(showArchived=True))]
    assert act("unarchive")[one] == ""
    assert act("unarchive", runIds=[99999999]) == {99999999: "Run with id '99999999' not found here."}
    home = user.get(f"/api/v1/projects/{project}").json["project"]["workspaceId"]
    other = user.post(f"/api/v1/workspaces/{home}/projects", {"name": "other"}).json["project"]["id"]
    body = {"runIds": [one, *two], "sourceProjectId": project, "destinationProjectId": other, "skipMultitrial": True}
    moved = user.post("/api/v1/runs/move", body).json["results"]
    assert [bool(result["error"]) for result in moved] == [False, True, True]
    assert [run["id"] for run in found(user, other)] == [one]
    chosen = filtered({"columnName": "id", "operator": "=", "value": one})
    assert act("delete", runIds=[], filter=chosen, projectId=other) == {one: ""}


def test_project_table_columns_can_be_sorted_and_filtered(master: MasterProcess, user: Api, project: int) -> None:
    number = create(user, config(hyperparameters={"net": {"depth": 3}}), projectId=project)
    job = jobs_of(master, user, number)[0]
    job.lease()
    records = [job.training(1, acc=0.5), job.validation(1, loss=2.0), job.validation(2, loss=4.0)]
    job.send([*records, {"t": time.time(), "kind": "metadata", "metadata": {"note": {"by": "ada"}}}])
    address = f"/api/v1/projects/{project}"

    def columns(kind: str) -> dict[str, tuple[str, str]]:
        answer = user.get(f"{address}/columns", tableType=kind).json["columns"]
        return {
            one["column"]: (one["location"].removeprefix("LOCATION_TYPE_"), one["type"].removeprefix("COLUMN_TYPE_"))
            for one in answer
        }

    experiments, runs = columns("TABLE_TYPE_EXPERIMENT"), columns("TABLE_TYPE_RUN")
    assert experiments["name"] == ("EXPERIMENT", "TEXT")
    assert experiments["hp.net.depth"] == ("HYPERPARAMETERS", "NUMBER")
    assert experiments["validation.loss.min"] == ("VALIDATIONS", "NUMBER")
    assert runs["hp.net.depth"] == ("RUN_HYPERPARAMETERS", "NUMBER")
    assert runs["metadata.note.by"] == ("RUN_METADATA", "TEXT")
    assert runs["training.acc.mean"] == ("TRAINING", "NUMBER")
    for name in runs:  # whatever is offered can be sorted by
        assert user.post("/api/v1/runs", {"projectId": project, "sort": f"{name}=asc"}).status == 200, name
    for name in experiments:
        sorted_ = user.post("/api/v1/experiments-search", {"projectId": project, "sort": f"{name}=asc"})
        assert sorted_.status == 200, name
    ranges = {
        one["metricsName"]: (one["min"], one["max"])
        for one in user.get(f"{address}/experiments/metric-ranges").json["ranges"]
    }
    assert ranges["validation.loss.max"] == (4.0, 4.0)
    assert user.get(f"{address}/metadata/note.by").json == {"values": ["ada"]}
    wanted = filtered({"columnName": "metadata.note.by", "operator": "=", "value": "ada"})
    assert [run["id"] for run in found(user, project, filter=wanted)] == [job.trial_id]
    assert user.get("/api/v1/projects/99999999/columns").status == 404
    recent = user.get("/api/v1/user/projects/activity", limit=1).json["projects"]
    assert [entry["id"] for entry in recent] == [project]
    user.post(f"/api/v1/experiments/{number}/kill")


def test_profiler_series_and_metrics_are_streamed(user: Api, job: Job) -> None:
    def measured(group: str, step: int, **values: Any) -> dict[str, Any]:
        shown = {"t": 1000.0 + step, "kind": "metrics", "group": group, "steps_completed": step}
        return {**shown, "metrics": {"node-a": values}}

    job.send(
        [
            measured("cpu", 1, cpu_util_simple=10.0),
            measured("cpu", 2, cpu_util_simple=20.0),
            measured("gpu", 1, **{"GPU-1": {"gpu_util": 90.0}}),
        ]
    )
    address = f"/api/v1/trials/{job.trial_id}/profiler"
    (series,) = user.lines(f"{address}/available_series")
    names = {(one["name"], one["agentId"], one["gpuUuid"]) for one in series["labels"]}
    assert names == {("cpu_util_simple", "node-a", ""), ("gpu_util", "node-a", "GPU-1")}
    (batch,) = user.lines(f"{address}/metrics", **{"labels.name": "cpu_util_simple"})
    assert (batch["batch"]["values"], batch["batch"]["batches"]) == ([10.0, 20.0], [1, 2])
    following = user.lines(f"{address}/metrics", **{"labels.name": "cpu_util_simple"}, follow=True)
    next(following)
    job.send([measured("cpu", 3, cpu_util_simple=30.0)])
    assert next(following)["batch"]["values"] == [30.0]
    assert user.get("/api/v1/trials/99999999/profiler/metrics").status == 404
    assert user.get("/api/v1/trials/99999999/profiler/available_series").status == 404
