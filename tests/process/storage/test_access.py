"""Whose bucket, key, path and job is it: what an account cannot do with the master's signatures."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.master import MasterProcess, serving, wait_for
from tests.support.storage.servers import Server, moto

SHA = "0" * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as found:
        yield found


@pytest.fixture(scope="module")
def master(server: Server) -> Iterator[MasterProcess]:
    section = {**server.section, "prefix": "site"}
    settings = {"checkpoint_storage": section, "resource_manager": {"type": "local", "slots": 1, "poll_interval": 0.5}}
    with serving(json.dumps(settings)) as process:
        blocker = api_of(process, "admin")
        number = create(blocker, config(name="holds the only slot"))
        wait_for(
            lambda: blocker.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] == "STATE_RUNNING",
            "the job that holds the slot",
        )
        yield process


def api_of(master: MasterProcess, user: str) -> Api:
    from trainmaster.client.session_calls import hashed

    body = {"username": user, "password": hashed(master.password), "isHashed": True}
    return Api(master.url, Api(master.url).post("/api/v1/auth/login", body).json["token"])


@pytest.fixture
def user(master: MasterProcess) -> Api:
    return api_of(master, "determined")


def job_with(master: MasterProcess, user: Api, **keys: Any) -> Job:
    found = jobs_of(master, user, create(user, config(**keys)))[0]
    assert found.lease().status == 200
    return found


def begin(job: Job, key: str, *paths: str, allocation: str = "") -> Any:
    files = [{"path": path, "size": 1, "sha256": SHA} for path in paths]
    where = f"/api/x1/allocations/{allocation or job.allocation_id}/checkpoints/{key}/begin"
    return job.api.post(where, {"files": files})


def test_job_signs_for_its_own_checkpoints_only(master: MasterProcess, user: Api) -> None:
    mine, other = job_with(master, user), job_with(master, user)
    key = str(uuid.uuid4())
    assert begin(mine, key, "a").status == 200
    assert begin(mine, key, "a", allocation=other.allocation_id).status == 403
    taken = begin(other, key, "b")
    assert (taken.status, "is another job's" in taken.sentence) == (409, True)
    assert user.post(f"/api/x1/allocations/{mine.allocation_id}/checkpoints/{key}/begin", {"files": []}).status == 403
    assert begin(mine, "not-a-uuid", "a").status == 400
    other_url = begin(other, str(uuid.uuid4()), "b").json["files"][0]["put"]["url"]
    assert f"/site/{key}/" not in other_url


@pytest.mark.parametrize(
    "path", ["../up", "a/../../b", "/etc/passwd", "a//b", "", ".", "a/.", "line\nbreak", ".parts/x", "x" * 900]
)
def test_paths_that_lead_elsewhere_are_refused(master: MasterProcess, user: Api, path: str) -> None:
    answer = begin(job_with(master, user), str(uuid.uuid4()), path)
    assert answer.status == 400
    assert "inside a checkpoint" in answer.sentence or "cannot be stored" in answer.sentence


def test_checkpoint_that_was_not_sent_is_not_taken(master: MasterProcess, user: Api) -> None:
    job = job_with(master, user)
    never, half = str(uuid.uuid4()), str(uuid.uuid4())
    assert begin(job, half, "weights").status == 200
    for key in (never, half):
        record = {"t": 1.0, "kind": "checkpoint", "uuid": key, "steps_completed": 1, "resources": {"weights": 1}}
        assert job.send([{**record, "metadata": {"steps_completed": 1}}]).status == 200
        assert user.get(f"/api/v1/checkpoints/{key}").status == 404
    lines = user.get(f"/api/v1/tasks/{job.task_id}/logs?limit=100").content.decode()
    assert "is not stored: nothing of it was sent through this master" in lines
    assert "is not stored: weights has not arrived" in lines


def test_checkpoint_that_another_trial_sends_is_not_taken(master: MasterProcess, user: Api) -> None:
    """Its files would be the other experiment's to download."""
    victim, thief = job_with(master, user), job_with(master, user)
    key = str(uuid.uuid4())
    assert begin(victim, key, "weights").status == 200
    path = f"/api/x1/allocations/{victim.allocation_id}/checkpoints/{key}/sent"
    assert victim.api.post(path, {"paths": ["weights"]}).status == 200
    record = {"t": 1.0, "kind": "checkpoint", "uuid": key, "steps_completed": 1, "resources": {"weights": 1}}
    record["metadata"] = {"steps_completed": 1}
    assert thief.send([record]).status == 200
    assert user.get(f"/api/v1/checkpoints/{key}").status == 404
    assert victim.send([record]).status == 200
    assert user.get(f"/api/v1/checkpoints/{key}").json["checkpoint"]["training"]["trialId"] == victim.trial_id


def test_keys_of_the_site_stay_with_the_master(master: MasterProcess, server: Server, user: Api) -> None:
    job = job_with(master, user)
    shown = json.dumps(user.get(f"/api/v1/experiments/{job.experiment_id}").json)
    lease = json.dumps(job.lease().json)
    staged = "".join(path.read_text(errors="replace") for path in Path(job.folder).rglob("*") if path.is_file())
    for secret in (server.section["secret_key"], server.section["access_key"]):
        assert secret not in shown
        assert secret not in lease
        assert secret not in staged
    assert server.section["secret_key"] not in master.log.read_text()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"bucket": "somebody-elses"}, "has no key for s3://somebody-elses"),
        ({"prefix": "sit"}, "has no key for"),
        ({"prefix": "other"}, "has no key for"),
        ({"endpoint_url": "http://169.254.169.254"}, "has no key for"),
        (
            {"endpoint_url": "http://169.254.169.254", "access_key": "a", "secret_key": "b"},
            "does not connect to http://169.254.169.254, which an experiment names",
        ),
        (
            {"endpoint_url": "http://169.254.169.254#.amazonaws.com", "access_key": "a", "secret_key": "b"},
            "does not connect to",
        ),
        (
            {"endpoint_url": "http://u@169.254.169.254/x.amazonaws.com", "access_key": "a", "secret_key": "b"},
            "does not connect to",
        ),
    ],
)
def test_other_places_are_not_signed_for(
    master: MasterProcess, server: Server, user: Api, section: dict[str, str], words: str
) -> None:
    place = {"type": "s3", "bucket": server.section["bucket"], "endpoint_url": server.section["endpoint_url"]}
    place["prefix"] = "site"
    job = job_with(master, user, checkpoint_storage={**place, **section})
    answer = begin(job, str(uuid.uuid4()), "a")
    assert (answer.status, words in answer.sentence) == (400, True), answer.sentence


def test_place_below_the_sites_own_is_signed_for(master: MasterProcess, server: Server, user: Api) -> None:
    place = {"type": "s3", "bucket": server.section["bucket"], "endpoint_url": server.section["endpoint_url"]}
    job = job_with(master, user, checkpoint_storage={**place, "prefix": "site/team"})
    url = begin(job, str(uuid.uuid4()), "a").json["files"][0]["put"]["url"]
    assert "/site/team/" in url


def test_own_keys_are_masked_where_they_are_shown(master: MasterProcess, server: Server, user: Api) -> None:
    own = {"access_key": "MINE", "secret_key": "my-own-secret-key", "endpoint_url": server.section["endpoint_url"]}
    job = job_with(master, user, checkpoint_storage={"type": "s3", "bucket": "b", **own})
    assert "my-own-secret-key" not in json.dumps(user.get(f"/api/v1/experiments/{job.experiment_id}").json)


def test_files_of_the_masters_machine_cannot_be_named(user: Api) -> None:
    for key in ("ca_file", "credentials_file"):
        kind = "s3" if key == "ca_file" else "gcs"
        storage = {"type": kind, "bucket": "b", key: "/etc/shadow"}
        answer = user.post("/api/v1/experiments", {"config": config(checkpoint_storage=storage), "activate": True})
        assert answer.status == 400
        assert "names a file of the master, and belongs into its configuration" in answer.sentence


def test_workspace_opens_neither_the_site_nor_files_of_the_master(
    master: MasterProcess, server: Server, user: Api
) -> None:
    """The user who creates a workspace is its administrator."""
    inside = {
        "type": "s3",
        "bucket": "b",
        "endpoint_url": "http://169.254.169.254",
        "access_key": "a",
        "secret_key": "b",
    }
    keyless = {"type": "s3", "bucket": "tm-checkpoints", "endpoint_url": server.url, "prefix": "elsewhere"}
    for number, (section, words) in enumerate(
        [(inside, "does not connect to http://169.254.169.254"), (keyless, "has no key for s3://tm-checkpoints")]
    ):
        body = {"name": f"w{number}", "checkpointStorageConfig": section}
        workspace = user.post("/api/v1/workspaces", body).json["workspace"]
        made = user.post(
            f"/api/v1/workspaces/{workspace['id']}/projects", {"name": "p", "workspaceId": workspace["id"]}
        )
        assert made.status == 200, made.content
        job = jobs_of(master, user, create(user, config(workspace=f"w{number}", project="p")))[0]
        assert job.lease().status == 200
        assert "workspace-secret" not in job.lease().content.decode()
        answer = begin(job, str(uuid.uuid4()), "a")
        assert (answer.status, words in answer.sentence) == (400, True), answer.sentence
    for key in ("ca_file", "credentials_file"):
        kind = "s3" if key == "ca_file" else "gcs"
        section = {"type": kind, "bucket": "b", key: "/etc/shadow"}
        answer = user.post("/api/v1/workspaces", {"name": f"x{key}", "checkpointStorageConfig": section})
        assert answer.status == 400
        assert "names a file of the master" in answer.sentence


def test_template_cannot_name_files_of_the_master(user: Api) -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "b", "ca_file": "/etc/shadow"}
    answer = user.post(
        "/api/v1/templates/spy", {"name": "spy", "config": {"checkpoint_storage": storage}, "workspaceId": 1}
    )
    if answer.status == 200:
        answer = user.post("/api/v1/experiments", {"config": config(), "template": "spy", "activate": True})
    assert answer.status == 400
    assert "names a file of the master" in answer.sentence
