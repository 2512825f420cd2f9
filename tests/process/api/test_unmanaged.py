"""Experiments and trials that run elsewhere: made, told of, ended, brought back."""

from __future__ import annotations

import base64
import io
import json
import tarfile
import uuid
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import wait_for

CONFIG = json.dumps(
    {
        "name": "elsewhere",
        "searcher": {"name": "single", "metric": "loss"},
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/elsewhere"},
    }
)


def make(user: Api, **hparams: Any) -> tuple[int, int]:
    """An experiment and a trial of it."""
    answer = user.post("/api/v1/experiments", {"config": CONFIG, "unmanaged": True})
    assert answer.status == 200, answer.content
    number = answer.json["experiment"]["id"]
    made = user.post("/api/v1/trials", {"experimentId": number, "hparams": hparams, "unmanaged": True})
    assert made.status == 200, made.content
    return number, made.json["trial"]["id"]


def start(user: Api, trial: int, *, resume: bool = True) -> Any:
    return user.post(f"/api/v1/trials/{trial}/start", {"trialId": trial, "resume": resume})


def say(user: Api, trial: int, state: str | None = None) -> Any:
    body = {"trialId": trial} | ({"state": f"STATE_{state}"} if state else {})
    return user.call("PATCH", f"/api/v1/trials/{trial}", body)


def state(user: Api, experiment: int) -> str:
    return str(user.get(f"/api/v1/experiments/{experiment}").json["experiment"]["state"]).removeprefix("STATE_")


def trial_of(user: Api, trial: int) -> dict[str, Any]:
    return dict(user.get(f"/api/v1/trials/{trial}").json["trial"])


def report(user: Api, trial: int, steps: int, run: int = 1, group: str = "validation", **metrics: Any) -> Any:
    told = {"trialId": trial, "trialRunId": run, "stepsCompleted": steps, "metrics": {"avgMetrics": metrics}}
    return user.post(f"/api/v1/trials/{trial}/metrics", {"group": group, "metrics": told})


def test_code_that_comes_along_is_kept_or_refused(user: Api) -> None:
    file = {"path": "train.py", "type": 48, "content": base64.b64encode(b"print()").decode(), "mode": 420, "mtime": "0"}
    made = user.post("/api/v1/experiments", {"config": CONFIG, "unmanaged": True, "modelDefinition": [file]})
    number = made.json["experiment"]["id"]
    assert made.json["experiment"]["modelDefinitionSize"] > 0
    kept = base64.b64decode(user.get(f"/api/v1/experiments/{number}/model_def").json["b64Tgz"])
    with tarfile.open(fileobj=io.BytesIO(kept)) as archive:
        assert archive.getnames() == ["train.py"]
    told = {"config": CONFIG, "unmanaged": True, "modelDefinition": [{**file, "path": "../x"}]}
    refused = user.post("/api/v1/experiments", told)
    assert (refused.status, "../x" in refused.sentence) == (400, True)


# -- one life -----------------------------------------------------------------------------------------------------


def test_from_its_making_to_its_end(user: Api) -> None:
    experiment, trial = make(user, lr=0.1)
    shown = user.get(f"/api/v1/experiments/{experiment}").json["experiment"]
    assert (shown["unmanaged"], shown["state"], shown["name"]) == (True, "STATE_RUNNING", "elsewhere")
    begun = start(user, trial, resume=False).json
    assert (begun["trialRunId"], begun["stepsCompleted"], begun["latestCheckpoint"]) == (1, 0, None)
    assert start(user, trial, resume=False).status == 409
    assert say(user, trial, "RUNNING").json["trial"]["hparams"] == {"lr": 0.1}
    for steps in (1, 2):
        assert report(user, trial, steps, loss=1 / steps).json == {}
    assert user.post(f"/api/v1/trials/{trial}/progress", {"trialId": trial, "progress": 0.5, "isRaw": True}).json == {}
    found = trial_of(user, trial)
    assert (found["totalBatchesProcessed"], found["searcherMetricValue"]) == (2, 0.5)
    assert user.get(f"/api/v1/experiments/{experiment}").json["experiment"]["progress"] == 0.5
    assert say(user, trial, "COMPLETED").json["trial"]["state"] == "STATE_COMPLETED"
    assert state(user, experiment) == "COMPLETED"
    jobs = user.get("/api/v1/job-queues-v2").json["jobs"]
    assert str(experiment) not in [job["full"]["entityId"] for job in jobs]


@pytest.mark.parametrize(("said", "ended"), [("ERROR", "ERROR"), ("CANCELED", "CANCELED")])
def test_other_ends(user: Api, said: str, ended: str) -> None:
    experiment, trial = make(user)
    assert say(user, trial, said).json["trial"]["state"] == f"STATE_{ended}"
    assert state(user, experiment) in (ended, "COMPLETED" if said == "CANCELED" else ended)


def test_a_trial_that_starts_again_brings_its_experiment_back(user: Api) -> None:
    experiment, trial = make(user)
    start(user, trial)
    say(user, trial, "ERROR")
    assert state(user, experiment) == "ERROR"
    assert start(user, trial).json["trialRunId"] == 2
    assert state(user, experiment) == "RUNNING"
    assert report(user, trial, 5, run=1, loss=1).status == 409, "the first run is over"
    assert report(user, trial, 5, run=2, loss=1).status == 200
    assert report(user, trial, 5, run=3, loss=1).status == 400
    say(user, trial, "COMPLETED")
    assert state(user, experiment) == "COMPLETED"
    other = user.post("/api/v1/trials", {"experimentId": experiment, "unmanaged": True})
    assert other.status == 200
    assert state(user, experiment) == "RUNNING"
    user.post(f"/api/v1/experiments/{experiment}/kill")
    assert state(user, experiment) == "CANCELED"


def test_silence_ends_it_and_a_sign_of_life_brings_it_back(user: Api, engine: Engine) -> None:
    experiment, trial = make(user)
    with engine.begin() as connection:  # an hour passes
        moved = f"UPDATE trials SET heartbeat_at = now() - interval '1 hour' WHERE id = {trial}"
        connection.execute(text(moved))

    def given_up() -> bool:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_notify('trainmaster', 'janitor')"))
        return state(user, experiment) == "ERROR"

    wait_for(given_up, "the end of the silent trial")
    assert "no heartbeat" in trial_of(user, trial)["stateReason"]
    assert say(user, trial).json["trial"]["state"] == "STATE_ACTIVE"
    assert state(user, experiment) == "RUNNING"
    say(user, trial, "COMPLETED")
    assert say(user, trial).json["trial"]["state"] == "STATE_COMPLETED", "a late sign of life changes nothing"
    assert state(user, experiment) == "COMPLETED"


def test_master_cannot_pause_or_continue_unmanaged_experiment(user: Api) -> None:
    experiment, _ = make(user)
    for verb in ("pause", "activate"):
        assert "outside of this master" in user.post(f"/api/v1/experiments/{experiment}/{verb}").sentence
    assert user.post(f"/api/v1/experiments/{experiment}/cancel").status == 200
    assert state(user, experiment) == "CANCELED"
    answer = user.post("/api/v1/experiments/continue", {"id": experiment})
    assert (answer.status, "outside of this master" in answer.sentence) == (400, True)


# -- names of one's own ---------------------------------------------------------------------------------------------


def test_names_of_ones_own(user: Api, admin: Api) -> None:
    name, body = uuid.uuid4().hex, {"config": CONFIG, "unmanaged": True}
    address = f"/api/v1/experiments/by-external-id/{name}"
    first = user.call("PUT", address, body).json["experiment"]
    assert user.call("PUT", address, body).json["experiment"]["id"] == first["id"]
    assert first["externalExperimentId"] == name
    wish = {"createTrialRequest": {"experimentId": first["id"], "unmanaged": True}, "externalTrialId": "t/1"}
    made = [user.call("PUT", "/api/v1/trials", wish).json["trial"]["id"] for _ in range(2)]
    assert made[0] == made[1]
    wish["externalTrialId"] = "t2"
    trial = user.call("PUT", "/api/v1/trials", wish).json["trial"]["id"]
    assert trial != made[0]
    assert user.get(f"/api/v1/trials/by-external-id/{name}/t2").json["trial"]["id"] == trial
    assert user.get(f"/api/v1/trials/by-external-id/{name}/t3").status == 404
    assert user.call("PUT", address, {"config": CONFIG}).status == 400
    user.post(f"/api/v1/experiments/{first['id']}/kill")


# -- checkpoints, logs, metadata ------------------------------------------------------------------------------------


def test_checkpoints(user: Api) -> None:
    experiment, trial = make(user)
    start(user, trial)
    report(user, trial, 7, loss=0.25)
    task, key = trial_of(user, trial)["taskId"], str(uuid.uuid4())
    storage = {"type": "shared_fs", "host_path": "/elsewhere"}
    numbers = [
        user.post("/api/v1/runs/start", {"runId": trial, "checkpointStorage": storage}).json["storageId"]
        for _ in range(2)
    ]
    assert numbers[0] == numbers[1]
    body = {
        "uuid": key, "taskId": task, "allocationId": task, "state": "STATE_COMPLETED", "training": {},
        "resources": {"a": "10", "b/c": "5"}, "metadata": {"steps_completed": 7, "x": 1}, "storageId": numbers[0],
        "reportTime": "2026-01-02T03:04:05.678",
    }  # fmt: skip
    for _ in range(2):
        assert user.post("/api/v1/checkpoints", body).json == {}
    shown = user.get(f"/api/v1/checkpoints/{key}").json["checkpoint"]
    assert shown["resources"] == {"a": "10", "b/c": "5"}
    assert shown["storage"]["host_path"] == "/elsewhere"
    assert shown["training"]["searcherMetric"] == 0.25
    assert shown["reportTime"] == "2026-01-02T03:04:05.678Z"
    begun = start(user, trial).json
    assert (begun["trialRunId"], begun["latestCheckpoint"], begun["stepsCompleted"]) == (2, key, 7)

    def patch(resources: dict[str, str]) -> str:
        change = {"uuid": key, "resources": {"resources": resources}}
        assert user.call("PATCH", "/api/v1/checkpoints", {"checkpoints": [change]}).json == {}
        found = user.get(f"/api/v1/checkpoints/{key}").json["checkpoint"]
        assert found["resources"] == resources
        return str(found["state"])

    assert patch({"a": "10"}) == "STATE_PARTIALLY_DELETED"
    assert trial_of(user, trial)["totalCheckpointSize"] == "10"
    assert patch({}) == "STATE_DELETED"
    assert (trial_of(user, trial)["checkpointCount"], start(user, trial).json["latestCheckpoint"]) == (0, None)
    wrong: Any
    for wrong in ({"metadata": {}}, {"uuid": "x"}, {"state": "STATE_ERROR"}):
        assert user.post("/api/v1/checkpoints", {**body, **wrong}).status == 400
    assert user.post("/api/v1/checkpoints", {**body, "taskId": "none"}).status == 404
    user.post(f"/api/v1/experiments/{experiment}/kill")


def test_logs_and_metadata(user: Api, anonymous: Api) -> None:
    experiment, trial = make(user)
    task = trial_of(user, trial)["taskId"]
    old = [{"task_id": task, "timestamp": "2026-01-02T03:04:05+00:00", "log": "one\n", "rank": "0"}]
    assert user.post("/task-logs", old).json == {}
    new = {"logs": [{"taskId": task, "log": "two", "level": "LOG_LEVEL_ERROR", "rankId": 1, "stdtype": "stderr"}]}
    assert user.post("/api/v1/task/logs", new).json == {}
    lines = list(user.lines(f"/api/v1/trials/{trial}/logs", limit=10))
    assert [(line["log"], line["level"], line["rankId"]) for line in lines] == [
        ("one", "LOG_LEVEL_INFO", 0), ("two", "LOG_LEVEL_ERROR", 1),
    ]  # fmt: skip
    assert anonymous.post("/task-logs", old).status == 401
    assert user.post("/task-logs", [{"task_id": "none", "log": "x"}]).status == 404
    address = f"/api/v1/runs/{trial}/metadata"
    assert user.get(address).json == {"metadata": {}}
    assert user.post(address, {"metadata": {"a": {"b": 1}}, "runId": trial}).json == {"metadata": {"a": {"b": 1}}}
    assert user.get(address).json == {"metadata": {"a": {"b": 1}}}
    user.post(f"/api/v1/experiments/{experiment}/kill")


# -- whose it is ----------------------------------------------------------------------------------------------------


def test_jobs_report_for_themselves_only(user: Api, admin: Api, job: Job) -> None:
    """Determined's harness in a job of ours, call by call."""
    assert report(job.api, job.trial_id, 3, loss=0.5).status == 200
    assert report(job.api, job.trial_id, 3, group="training", loss=0.5).status == 200
    assert trial_of(user, job.trial_id)["searcherMetricValue"] == 0.5
    body = {"trialId": job.trial_id, "progress": 0.25, "isRaw": True}
    assert job.api.post(f"/api/v1/trials/{job.trial_id}/progress", body).status == 200
    experiment, trial = make(user)
    assert report(job.api, trial, 3, loss=1).status == 403
    assert job.api.post("/task-logs", [{"task_id": trial_of(user, trial)["taskId"], "log": "x"}]).status == 403
    assert job.api.post("/task-logs", [{"task_id": job.task_id, "log": "x"}]).status == 200
    assert report(user, trial, 3, loss=1).status == 200
    assert "by this master" in start(user, job.trial_id).sentence
    assert say(user, job.trial_id, "COMPLETED").status == 400
    assert user.post("/api/v1/trials", {"experimentId": job.experiment_id, "unmanaged": True}).status == 400
    user.post(f"/api/v1/experiments/{experiment}/kill")
    early = {"reason": "EXITED_REASON_NEVER"}
    assert job.api.post(f"/api/v1/trials/{job.trial_id}/early_exit", early).status == 400
    assert job.api.post(
        f"/api/v1/trials/{job.trial_id}/early_exit", {"reason": "EXITED_REASON_INVALID_HP"}
    ).status == 200  # fmt: skip


def test_of_others_nothing(user: Api, admin: Api) -> None:
    experiment, trial = make(admin)
    assert report(user, trial, 1, loss=1).status == 403
    assert say(user, trial).status == 403
    assert start(user, trial).status == 403
    for missing in (say(user, 99999999), start(user, 99999999), report(user, 99999999, 1, loss=1)):
        assert missing.status == 404
    assert say(admin, trial, "PAUSED").status == 400
    admin.post(f"/api/v1/experiments/{experiment}/kill")


@pytest.mark.parametrize("wrong", ["", "searcher: 3", "entrypoint: x"])
def test_configurations_that_cannot_be(user: Api, wrong: str) -> None:
    assert user.post("/api/v1/experiments", {"config": wrong, "unmanaged": True}).status == 400
