"""The model registry: models, checkpoints as their versions, and which trials use them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.api.test_checkpoint_removal import save
from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import MasterProcess, wait_for

Json = dict[str, Any]
MODELS = "/api/v1/models"


@pytest.fixture
def name() -> str:
    return f"cats-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def model(user: Api, name: str) -> Json:
    answer = user.post(MODELS, {"name": name, "description": "tells apart", "labels": ["a"], "metadata": {"k": [1]}})
    assert answer.status == 200, answer.content
    found: Json = answer.json["model"]
    return found


@pytest.fixture
def job(keeping: Job) -> Job:
    return keeping


def test_a_model_from_its_making_to_its_end(user: Api, model: Json, name: str) -> None:
    assert (model["name"], model["username"], model["numVersions"], model["workspaceId"]) == (name, "determined", 0, 1)
    assert (model["description"], model["labels"], model["metadata"]) == ("tells apart", ["a"], {"k": [1]})
    for key in (name, model["id"]):
        assert user.get(f"{MODELS}/{key}").json["model"] == model
    assert user.post(MODELS, {"name": name.upper()}).status == 409
    change = {"description": "", "labels": [], "metadata": {"x": None}, "notes": "noted", "name": f"{name}2"}
    changed = user.call("PATCH", f"{MODELS}/{name}", change).json["model"]
    assert {key: changed[key] for key in change} == change
    assert changed["lastUpdatedTime"] >= model["lastUpdatedTime"]
    assert user.post(f"{MODELS}/{name}2/archive").status == 200
    assert user.call("PATCH", f"{MODELS}/{name}2", {"notes": "more"}).status == 409
    assert user.post(f"{MODELS}/{name}2/unarchive").status == 200
    assert user.call("DELETE", f"{MODELS}/{name}2").status == 200
    assert user.get(f"{MODELS}/{model['id']}").status == 404


@pytest.mark.parametrize("wrong", ["", "  ", "a/b", "12", "\0"])
def test_names_that_are_none(user: Api, wrong: str) -> None:
    assert user.post(MODELS, {"name": wrong}).status == 400


def test_lists_of_models(user: Api, admin: Api, name: str) -> None:
    home = user.post("/api/v1/workspaces", {"name": name}).json["workspace"]["id"]
    ids = []
    for index, word in enumerate(("b", "a", "c")):
        body = {"name": f"{name} {word}", "description": str(index), "labels": [word, name], "workspaceId": home}
        ids.append(user.post(MODELS, body).json["model"]["id"])
    theirs = admin.post(MODELS, {"name": f"{name} d", "workspaceName": "Uncategorized"}).json["model"]["id"]

    def found(**query: Any) -> list[int]:
        answer = user.get(MODELS, **{"name": name.upper(), "sortBy": "SORT_BY_CREATION_TIME", **query})
        assert answer.status == 200, answer.content
        return [entry["id"] for entry in answer.json["models"]]

    assert found() == [*ids, theirs]
    assert found(sortBy="SORT_BY_NAME") == [ids[1], ids[0], ids[2], theirs]
    assert found(orderBy="ORDER_BY_DESC", limit=1) == [theirs]
    assert found(workspaceNames=name) == found(workspaceIds=home) == ids
    assert found(labels="a") == [ids[1]]
    assert found(users="admin") == found(userIds=1) == [theirs]
    assert found(description="2") == [ids[2]]
    assert found(id=ids[0]) == [ids[0]]
    for sort in ("DESCRIPTION", "LAST_UPDATED_TIME", "NUM_VERSIONS", "WORKSPACE"):
        assert sorted(found(sortBy=f"SORT_BY_{sort}")) == [*ids, theirs]
    assert user.get("/api/v1/model/labels", workspaceId=home).json["labels"][0] == name
    assert user.post(f"{MODELS}/{ids[0]}/move", {"destinationWorkspaceId": 1}).status == 200
    assert found(workspaceIds=home) == ids[1:]
    assert user.post(f"{MODELS}/{ids[0]}/move", {"destinationWorkspaceId": 99999999}).status == 404
    refused = [
        user.call("PATCH", f"{MODELS}/{theirs}", {"notes": "mine"}),
        user.post(f"{MODELS}/{theirs}/archive"),
        user.post(f"{MODELS}/{theirs}/move", {"destinationWorkspaceId": home}),
        user.call("DELETE", f"{MODELS}/{theirs}"),
    ]
    assert [answer.status for answer in refused] == [403] * 4


def test_versions(user: Api, admin: Api, model: Json, name: str, job: Job, root: Path) -> None:
    at = f"{MODELS}/{name}/versions"
    keys = [save(job, root, steps, 1.0 / steps) for steps in (1, 2)]
    first, second = (
        user.post(at, {"checkpointUuid": key, "comment": "c", "labels": ["l"]}).json["modelVersion"] for key in keys
    )
    assert (first["version"], second["version"]) == (1, 2)
    assert second["checkpoint"]["uuid"] == keys[1]
    assert second["checkpoint"]["training"]["trialId"] == job.trial_id
    assert (second["model"]["name"], second["model"]["numVersions"]) == (name, 2)
    assert [v["version"] for v in user.get(at).json["modelVersions"]] == [1, 2]
    newest = user.get(at, limit=1, orderBy="ORDER_BY_DESC", sortBy="SORT_BY_VERSION").json
    assert [v["version"] for v in newest["modelVersions"]] == [2]
    assert newest["pagination"]["total"] == 2
    change = {"name": "good", "notes": "n", "comment": "d", "labels": ["m"], "metadata": {"a": 1}}
    changed = user.call("PATCH", f"{at}/1", change).json["modelVersion"]
    assert {key: changed[key] for key in change} == change
    assert user.get(f"{at}/1").json["modelVersion"] == changed
    assert user.get(f"{at}/3").status == 404
    assert user.post(at, {"checkpointUuid": str(uuid.uuid4())}).status == 404
    assert user.post(at, {"checkpointUuid": "x"}).status == 400
    assert user.call("DELETE", f"{at}/1").status == 200
    third = user.post(at, {"checkpointUuid": keys[0]}).json["modelVersion"]
    assert third["version"] == 3, "numbers are not given twice"


def test_versions_keep_their_checkpoints(
    master: MasterProcess, user: Api, model: Json, name: str, job: Job, root: Path
) -> None:
    at = f"/api/v1/experiments/{job.experiment_id}"
    kept, lost, latest = (save(job, root, steps) for steps in (1, 2, 3))
    assert user.post(f"{MODELS}/{name}/versions", {"checkpointUuid": kept}).status == 200
    job.leave()
    wait_for(lambda: user.get(at).json["experiment"]["state"] == "STATE_COMPLETED", "its end")
    state = "/api/v1/checkpoints/{}"
    wait_for(
        lambda: user.get(state.format(lost)).json["checkpoint"]["state"] == "STATE_DELETED", "the policy to be kept"
    )
    assert [(root / key).exists() for key in (kept, lost, latest)] == [True, False, True]
    for answer in (user.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [kept]}), user.call("DELETE", at)):
        assert answer.status == 409, answer.content
    assert user.post(f"{MODELS}/{name}/versions", {"checkpointUuid": lost}).status == 409
    assert user.call("DELETE", f"{MODELS}/{name}").status == 200
    assert user.call("DELETE", at).status == 200
    wait_for(lambda: user.get(at).status == 404, "its deletion")


def test_metrics_of_trials_that_use_checkpoint_are_listed(
    user: Api, model: Json, name: str, job: Job, root: Path, experiment: Callable[..., int], master: MasterProcess
) -> None:
    from tests.support.api.jobs import jobs_of

    key = save(job, root, 1)
    assert user.post(f"{MODELS}/{name}/versions", {"checkpointUuid": key}).status == 200
    (uses,) = jobs_of(master, user, experiment())
    uses.lease()
    info = {"trialId": uses.trial_id, "checkpointUuid": key, "modelId": model["id"], "modelVersion": 1}
    info["trialSourceInfoType"] = "TRIAL_SOURCE_INFO_TYPE_INFERENCE"
    for _ in range(2):
        assert uses.api.post("/api/v1/trial-source-info", {"trialSourceInfo": info}).json["checkpointUuid"] == key
    uses.send([uses.validation(1, score=0.5), uses.training(1, speed=2)])
    for at in (f"/api/v1/checkpoints/{key}/metrics", f"{MODELS}/{name}/versions/1/metrics"):
        found = user.get(at, metricGroup="validation", trialSourceInfoType="TRIAL_SOURCE_INFO_TYPE_INFERENCE")
        (report,) = found.json["metrics"]
        assert (report["trialId"], report["metrics"]["validation_metrics"]) == (uses.trial_id, {"score": 0.5})
        assert len(user.get(at).json["metrics"]) == 2
        assert user.get(at, trialSourceInfoType="TRIAL_SOURCE_INFO_TYPE_FINE_TUNING").json["metrics"] == []
        assert user.get(at, trialSourceInfoType="SOMETHING").status == 400
    other = {"trialSourceInfo": {**info, "trialId": job.trial_id}}
    assert uses.api.post("/api/v1/trial-source-info", other).status == 403
