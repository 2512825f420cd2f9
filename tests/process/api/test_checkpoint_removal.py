"""Checkpoints whose files go: because somebody says so, or because the experiment's policy does not keep them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of, kept_in
from tests.support.master import MasterProcess, wait_for

Json = dict[str, Any]
CHECKPOINTS = "/api/v1/checkpoints"


def save(job: Job, root: Path, steps: int, loss: float | None = None) -> str:
    """A checkpoint with two files, written and reported."""
    key = str(uuid.uuid4())
    folder = root / key
    (folder / "sub").mkdir(parents=True)
    (folder / "model.bin").write_bytes(b"12345")
    (folder / "sub" / "optimizer.bin").write_bytes(b"123")
    resources = {"model.bin": 5, "sub/": 0, "sub/optimizer.bin": 3}
    storage = {"type": "shared_fs", "host_path": str(root)}
    record = {"t": time.time(), "kind": "checkpoint", "uuid": key, "steps_completed": steps, "resources": resources}
    reports = [job.validation(steps, loss=loss)] if loss is not None else []
    answer = job.send([*reports, record | {"metadata": {"steps_completed": steps}, "storage": storage}])
    assert answer.status == 200, answer.content
    return key


def seen(user: Api, key: str) -> Json:
    found: Json = user.get(f"{CHECKPOINTS}/{key}").json["checkpoint"]
    return found


@pytest.fixture
def job(keeping: Job) -> Job:
    return keeping


def test_metadata_is_replaced(user: Api, admin: Api, job: Job, root: Path) -> None:
    key = save(job, root, 1)
    body = {"checkpoint": {"uuid": key, "metadata": {"steps_completed": 1, "quality": "good"}}}
    answer = user.post(f"{CHECKPOINTS}/{key}/metadata", body)
    assert answer.status == 200, answer.content
    assert answer.json["checkpoint"]["metadata"] == seen(user, key)["metadata"] == body["checkpoint"]["metadata"]
    assert user.post(f"{CHECKPOINTS}/{key}/metadata", {"checkpoint": {"metadata": 3}}).status == 400
    assert user.post(f"{CHECKPOINTS}/{uuid.uuid4()}/metadata", body).status == 404


def test_files_by_pattern_and_all_of_them(user: Api, job: Job, root: Path) -> None:
    key, latest = save(job, root, 1), save(job, root, 2)
    outside = root / "outside.bin"
    outside.write_bytes(b"x")
    (root / key / "link").symlink_to(outside)
    body = {"checkpointUuids": [key], "checkpointGlobs": ["**/optimizer.*", "link"]}
    assert user.post(f"{CHECKPOINTS}/rm", body).status == 200
    wait_for(lambda: seen(user, key)["state"] == "STATE_PARTIALLY_DELETED", "the files to be gone")
    assert seen(user, key)["resources"].keys() == {"model.bin", "sub/"}
    assert (root / key / "model.bin").exists()
    assert outside.exists()
    trial = user.get(f"/api/v1/trials/{job.trial_id}").json["trial"]
    assert (trial["checkpointCount"], trial["totalCheckpointSize"]) == (2, "13")
    (root / key / "new.bin").write_bytes(b"1234567")
    assert user.post(f"{CHECKPOINTS}/rm", {"checkpointUuids": [key], "checkpointGlobs": []}).status == 200
    wait_for(lambda: seen(user, key)["resources"].get("new.bin") == "7", "the files to be read anew")
    refused = user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [latest]})
    assert (refused.status, latest in refused.sentence) == (409, True)
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [key]}).status == 200
    wait_for(lambda: seen(user, key)["state"] == "STATE_DELETED", "the checkpoint to be gone")
    assert not (root / key).exists()
    assert seen(user, key)["resources"] == {}
    assert user.get(f"/api/v1/experiments/{job.experiment_id}").json["experiment"]["checkpointCount"] == 1
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [key]}).status == 409


@pytest.mark.parametrize("glob", ["../*", "/etc/*", "", "a/../../b", "x\ny"])
def test_patterns_stay_inside(user: Api, job: Job, root: Path, glob: str) -> None:
    key = save(job, root, 1)
    answer = user.post(f"{CHECKPOINTS}/rm", {"checkpointUuids": [key], "checkpointGlobs": [glob]})
    assert answer.status == 400


def test_only_owners_remove(master: MasterProcess, admin: Api, user: Api, root: Path) -> None:
    number = admin.post("/api/v1/experiments", {"config": kept_in(root)}).json["experiment"]["id"]
    (theirs,) = jobs_of(master, admin, number)
    theirs.lease()
    key = save(theirs, root, 1)
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [key]}).status == 403
    assert user.post(f"{CHECKPOINTS}/rm", {"checkpointUuids": [key]}).status == 403
    assert user.post(f"{CHECKPOINTS}/{key}/metadata", {"checkpoint": {"metadata": {}}}).status == 403
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": [str(uuid.uuid4())]}).status == 404
    assert user.call("DELETE", CHECKPOINTS, {"checkpointUuids": ["x"]}).status == 400
    admin.post(f"/api/v1/experiments/{number}/kill")


def test_the_policy_when_the_experiment_has_ended(
    master: MasterProcess, user: Api, experiment: Callable[..., int], root: Path
) -> None:
    storage = {"type": "shared_fs", "host_path": str(root), "save_experiment_best": 0}
    number = experiment(config(checkpoint_storage={**storage, "save_trial_best": 1, "save_trial_latest": 1}))
    (job,) = jobs_of(master, user, number)
    job.lease()
    keys = [save(job, root, steps, loss) for steps, loss in ((1, 0.5), (2, 0.1), (3, 0.9), (4, 0.7))]
    at = f"/api/v1/experiments/{number}"
    asked = user.get(
        f"/experiments/{number}/preview_gc", save_experiment_best=2, save_trial_best=0, save_trial_latest=0
    ).json
    assert {entry["UUID"] for entry in asked["checkpoints"]} == {keys[2]}, "a trial that runs keeps its latest"
    assert asked["metric_name"] == "loss"
    job.leave()
    wait_for(lambda: user.get(at).json["experiment"]["state"] == "STATE_COMPLETED", "its end")
    wait_for(lambda: [seen(user, key)["state"] for key in keys].count("STATE_DELETED") == 2, "two checkpoints to go")
    assert [(root / key).exists() for key in keys] == [False, True, False, True]
    stricter = {"checkpointStorage": {"saveTrialLatest": 0}}
    assert user.call("PATCH", at, stricter).status == 200
    wait_for(lambda: seen(user, keys[3])["state"] == "STATE_DELETED", "the latest to go")
    assert [(root / key).exists() for key in keys] == [False, True, False, False]
    assert user.get(at).json["experiment"]["checkpointCount"] == 1
