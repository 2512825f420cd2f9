"""What owners change about experiments, one at a time, many at once, and going on with one that has ended."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of, staged
from tests.support.master import MasterProcess, wait_for

Json = dict[str, Any]
EXPERIMENTS = "/api/v1/experiments"


def seen(user: Api, number: int) -> Json:
    found: Json = user.get(f"{EXPERIMENTS}/{number}").json["experiment"]
    return found


@pytest.fixture
def paused(user: Api) -> Iterator[Callable[..., int]]:
    """Makes experiments that never start."""
    numbers: list[int] = []

    def make(project_id: int = 1, **keys: Any) -> int:
        body = {"config": config(**keys), "activate": False, "projectId": project_id}
        answer = user.post(EXPERIMENTS, body)
        assert answer.status == 200, answer.content
        numbers.append(answer.json["experiment"]["id"])
        return numbers[-1]

    yield make
    for number in numbers:
        user.post(f"{EXPERIMENTS}/{number}/kill")


@pytest.fixture(scope="module")
def projects(user: Api) -> list[int]:
    """Two projects of a workspace of this module's."""
    made = user.post("/api/v1/workspaces", {"name": f"edits {uuid.uuid4().hex[:8]}"}).json["workspace"]["id"]
    at = f"/api/v1/workspaces/{made}/projects"
    return [user.post(at, {"name": name, "workspaceId": made}).json["project"]["id"] for name in ("one", "two")]


# -- one -----------------------------------------------------------------------------------------------------------


def test_words_and_numbers(user: Api, paused: Callable[..., int]) -> None:
    number = paused(labels=["old"])
    body = {
        "id": number,
        "name": "renamed",
        "description": "what it is",
        "notes": "# found out\n",
        "labels": ["b", "a", "b"],
        "resources": {"maxSlots": 4, "weight": 2.5, "priority": 7},
        "checkpointStorage": {"saveExperimentBest": 5, "saveTrialLatest": 0},
    }
    answer = user.call("PATCH", f"{EXPERIMENTS}/{number}", body)
    assert answer.status == 200, answer.content
    found = answer.json["experiment"]
    assert found == seen(user, number)
    words = (found["name"], found["description"], found["notes"], found["labels"])
    assert words == ("renamed", "what it is", "# found out\n", ["b", "a"])
    assert found["config"]["name"] == "renamed"
    resources, storage = found["config"]["resources"], found["config"]["checkpoint_storage"]
    assert (resources["max_slots"], resources["weight"], resources["priority"]) == (4, 2.5, 7)
    kept = (storage["save_experiment_best"], storage["save_trial_best"], storage["save_trial_latest"])
    assert kept == (5, 1, 0)
    assert user.call("PATCH", f"{EXPERIMENTS}/{number}", {"resources": {"maxSlots": None}}).status == 200
    after = seen(user, number)
    assert after["config"]["resources"]["max_slots"] is None
    assert after["config"]["resources"]["weight"] == 2.5
    assert after["labels"] == ["b", "a"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": " "}, "name"),
        ({"labels": ["a", " "]}, "label"),
        ({"resources": {"priority": 0}}, "priority"),
        ({"resources": {"weight": 0}}, "weight"),
        ({"resources": {"maxSlots": -1}}, "max_slots"),
        ({"checkpointStorage": {"saveTrialBest": -1}}, "save_trial_best"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_values_that_cannot_be_change_nothing(user: Api, paused: Callable[..., int], body: Json, word: str) -> None:
    number = paused()
    before = seen(user, number)
    answer = user.call("PATCH", f"{EXPERIMENTS}/{number}", {"description": "x", **body})
    assert answer.status == 400
    assert word in answer.sentence
    assert seen(user, number) == before


def test_others_experiments_cannot_be_changed(admin: Api, user: Api, projects: list[int]) -> None:
    number = admin.post(EXPERIMENTS, {"config": config(), "activate": False}).json["experiment"]["id"]
    at = f"{EXPERIMENTS}/{number}"
    admin.post(f"{at}/kill")
    answers = [
        user.call("PATCH", at, {"name": "mine"}),
        user.post(f"{at}/archive"),
        user.post(f"{at}/unarchive"),
        user.call("PUT", f"{at}/labels/mine"),
        user.call("DELETE", f"{at}/labels/mine"),
        user.post(f"{at}/move", {"experimentId": number, "destinationProjectId": projects[0]}),
        user.call("PUT", f"{at}/retain_logs", {"experimentId": number, "numDays": 0}),
        user.post(f"{EXPERIMENTS}/continue", {"id": number, "overrideConfig": "{}"}),
        user.call("DELETE", f"{at}/tensorboard-files"),
        user.call("DELETE", at),
    ]
    assert [answer.status for answer in answers] == [403] * len(answers)


def test_labels_one_by_one(user: Api, paused: Callable[..., int], projects: list[int]) -> None:
    number = paused(projects[0], labels=["old"])
    assert user.call("PUT", f"{EXPERIMENTS}/{number}/labels/new%20one").json["labels"] == ["old", "new one"]
    assert user.call("PUT", f"{EXPERIMENTS}/{number}/labels/old").json["labels"] == ["old", "new one"]
    other = paused(projects[0], labels=["new one"])
    assert user.get("/api/v1/experiment/labels", projectId=projects[0]).json["labels"][0] == "new one"
    assert user.call("DELETE", f"{EXPERIMENTS}/{number}/labels/old").json["labels"] == ["new one"]
    assert seen(user, other)["labels"] == ["new one"]


def test_only_ended_experiment_can_be_archived(user: Api, paused: Callable[..., int]) -> None:
    number = paused()
    assert user.post(f"{EXPERIMENTS}/{number}/archive").status == 409
    user.post(f"{EXPERIMENTS}/{number}/kill")
    assert user.post(f"{EXPERIMENTS}/{number}/archive").status == 200
    assert seen(user, number)["archived"]
    assert user.post(f"{EXPERIMENTS}/{number}/move", {"destinationProjectId": 1}).status == 409
    assert user.post(f"{EXPERIMENTS}/{number}/unarchive").status == 200
    assert not seen(user, number)["archived"]


def test_moving(user: Api, paused: Callable[..., int], projects: list[int]) -> None:
    number = paused()
    body = {"experimentId": number, "destinationProjectId": projects[1]}
    assert user.post(f"{EXPERIMENTS}/{number}/move", body).status == 200
    assert (seen(user, number)["projectId"], seen(user, number)["projectName"]) == (projects[1], "two")
    gone = user.post(f"{EXPERIMENTS}/{number}/move", {"experimentId": number, "destinationProjectId": 99999999})
    assert gone.status == 404


def test_a_fork_has_its_parents_files(user: Api, paused: Callable[..., int]) -> None:
    body = {"config": config(), "activate": False, "modelDefinition": [{"path": "a.py", "type": 48, "content": "eA=="}]}
    parent = user.post(EXPERIMENTS, body).json["experiment"]["id"]
    fork = user.post(EXPERIMENTS, {"config": config(), "activate": False, "parentId": parent}).json["experiment"]
    assert fork["forkedFrom"] == parent
    files = [user.get(f"{EXPERIMENTS}/{number}/model_def").json["b64Tgz"] for number in (parent, fork["id"])]
    assert files[0] == files[1] != ""
    for number in (parent, fork["id"]):
        user.post(f"{EXPERIMENTS}/{number}/kill")


# -- many ----------------------------------------------------------------------------------------------------------


def bulk(user: Api, project: int, verb: str, **body: Any) -> dict[int, str]:
    method = {"delete": "DELETE", "retain_logs": "PUT"}.get(verb, "POST")
    answer = user.call(method, f"/api/v1/projects/{project}/experiments/{verb}", {"projectId": project, **body})
    assert answer.status == 200, answer.content
    return {result["id"]: result["error"] for result in answer.json["results"]}


def test_many_at_once(user: Api, paused: Callable[..., int]) -> None:
    made = user.post("/api/v1/workspaces", {"name": f"bulk {uuid.uuid4().hex[:8]}"}).json["workspace"]["id"]
    at = f"/api/v1/workspaces/{made}/projects"
    here, there = (user.post(at, {"name": name}).json["project"]["id"] for name in ("here", "there"))
    ids = [paused(here, labels=[label], name=f"{label} one") for label in ("a", "b", "b")]
    outside = paused()
    assert bulk(user, here, "archive", experimentIds=[ids[0], outside]).keys() == {ids[0], outside}
    refused = bulk(user, here, "archive", experimentIds=[ids[0], outside])
    assert "PAUSED" in refused[ids[0]]
    assert str(here) in refused[outside]
    everywhere = -1  # of all projects, as clients say it
    assert bulk(user, everywhere, "activate", experimentIds=[ids[0]]) == {ids[0]: ""}
    assert bulk(user, everywhere, "pause", experimentIds=[], filters={"name": "a one", "labels": ["a"]})[ids[0]] == ""
    everything = {"experimentIds": [], "filters": {"states": ["STATE_PAUSED"]}}
    assert bulk(user, here, "activate", experimentIds=ids[:1]) == {ids[0]: ""}
    assert bulk(user, here, "pause", experimentIds=ids[:1]) == {ids[0]: ""}
    assert bulk(user, here, "retain_logs", numDays=3, **everything) == dict.fromkeys(ids, "")
    some = {"experimentIds": [], "filters": {"labels": ["b"], "excludedExperimentIds": [ids[1]]}}
    assert bulk(user, here, "cancel", **some) == {ids[2]: ""}
    assert bulk(user, here, "kill", experimentIds=[], filters={"name": "one"}) == dict.fromkeys(ids, "")
    wait_for(lambda: all(seen(user, number)["state"] == "STATE_CANCELED" for number in ids), "their ends")
    assert bulk(user, here, "archive", experimentIds=[], filters={"archived": False}) == dict.fromkeys(ids, "")
    assert bulk(user, here, "move", experimentIds=ids[:1], destinationProjectId=there)[ids[0]] != ""
    assert bulk(user, here, "unarchive", experimentIds=ids) == dict.fromkeys(ids, "")
    assert bulk(user, here, "move", experimentIds=ids[:1], destinationProjectId=there) == {ids[0]: ""}
    assert bulk(user, here, "delete", experimentIds=[], filters={}) == dict.fromkeys(ids[1:], "")
    for gone in ids[1:]:
        wait_for(lambda gone=gone: user.get(f"{EXPERIMENTS}/{gone}").status == 404, "the deletion")  # type: ignore[misc]
    assert seen(user, ids[0])["projectId"] == there


# -- logs ----------------------------------------------------------------------------------------------------------


def test_logs_go_when_their_days_are_over(admin: Api, user: Api, job: Job, engine: Engine) -> None:
    remaining = f"/api/v1/trials/{job.trial_id}/remaining_log_retention_days"
    assert user.get(remaining).json["remainingDays"] == -1
    body = {"experimentId": job.experiment_id, "numDays": 10}
    assert user.call("PUT", f"{EXPERIMENTS}/{job.experiment_id}/retain_logs", body).status == 200
    assert user.get(remaining).json["remainingDays"] == 10
    own = {"trialId": job.trial_id, "numDays": 2}
    assert user.call("PUT", f"/api/v1/trials/{job.trial_id}/retain_logs", own).status == 200
    assert user.get(remaining).json["remainingDays"] == 2
    for days in (-2, 32768):
        assert user.call("PUT", f"/api/v1/trials/{job.trial_id}/retain_logs", {"numDays": days}).status == 400
    job.send([{"t": time.time(), "line": "to be kept for two days"}], stream="log-0")
    job.leave()
    assert user.post("/api/v1/cleanup_logs").status == 403
    assert admin.post("/api/v1/cleanup_logs").status == 200
    assert list(user.lines(f"/api/v1/trials/{job.trial_id}/logs")) != []
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE tasks SET end_time = now() - interval '3 days' WHERE task_id = :task"), {"task": job.task_id}
        )
    assert admin.post("/api/v1/cleanup_logs").json["removedCount"] > 0

    def nothing_left() -> bool:
        """The master's own last line may come after the first cleaning."""
        admin.post("/api/v1/cleanup_logs")
        return not list(user.lines(f"/api/v1/trials/{job.trial_id}/logs"))

    wait_for(nothing_left, "the lines to go")


# -- going on -------------------------------------------------------------------------------------------------------


def test_going_on_from_the_latest_checkpoint(master: MasterProcess, user: Api, job: Job) -> None:
    number = job.experiment_id
    refused = user.post(f"{EXPERIMENTS}/continue", {"id": number, "overrideConfig": "{}"})
    assert refused.status == 409
    saved = str(uuid.uuid4())
    record = {"t": time.time(), "kind": "checkpoint", "uuid": saved, "steps_completed": 4, "resources": {"a": 1}}
    job.send([record | {"metadata": {"steps_completed": 4}, "storage": {"type": "shared_fs", "host_path": "/none"}}])
    job.leave(1)
    wait_for(lambda: seen(user, number)["state"] == "STATE_ERROR", "its end")
    overrides = json.dumps({"max_restarts": 3, "hyperparameters": {"depth": 7}, "searcher": {"name": "single"}})
    answer = user.post(f"{EXPERIMENTS}/continue", {"id": number, "overrideConfig": overrides})
    assert answer.status == 200, answer.content
    found = seen(user, number)
    assert found["state"] in ("STATE_QUEUED", "STATE_STARTING", "STATE_RUNNING")
    assert (found["endTime"], found["config"]["max_restarts"]) == (None, 3)
    (trial,) = user.get(f"{EXPERIMENTS}/{number}/trials").json["trials"]
    assert (trial["id"], trial["hparams"]["depth"], trial["restarts"]) == (job.trial_id, 7, 0)
    (second,) = jobs_of(master, user, number, attempt=2)
    work = second.lease("played-2").json
    assert work["trial"]["latest_checkpoint"] == saved
    second.sent = {}
    second.send([second.validation(9, loss=0.5)])
    second.leave(0, job_id="played-2")
    wait_for(lambda: seen(user, number)["state"] == "STATE_COMPLETED", "its second end")
    assert seen(user, number)["bestTrialId"] == job.trial_id


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ("project: other", "project"),
        ("searcher: {name: random, metric: loss, max_trials: 2}", "single"),
        ("max_restart: 3", "max_restarts"),
        ("a: [", "YAML"),
        ("resources: {resource_pool: nowhere}", "nowhere"),
    ],
)
def test_invalid_override_is_rejected_and_changes_nothing(
    user: Api, paused: Callable[..., int], overrides: str, word: str
) -> None:
    number = paused()
    user.post(f"{EXPERIMENTS}/{number}/kill")
    before = seen(user, number)
    answer = user.post(f"{EXPERIMENTS}/continue", {"id": number, "overrideConfig": overrides})
    assert answer.status == 400, answer.content
    assert word in answer.sentence
    assert seen(user, number) == before


def test_continued_search_reruns_only_uncompleted_trials(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    searcher = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 2}
    space = {"x": {"type": "double", "minval": 0, "maxval": 1}}
    number = experiment(config(searcher=searcher, hyperparameters=space))
    first, _ = jobs_of(master, user, number)
    play(user, first, "first")
    wait_for(lambda: len(trials_of(user, number)) == 3, "the third trial")
    user.post(f"{EXPERIMENTS}/{number}/kill")
    wait_for(lambda: seen(user, number)["state"] == "STATE_CANCELED", "its end")
    before = trials_of(user, number)
    ended = seen(user, number)["endTime"]
    answer = user.post(f"{EXPERIMENTS}/continue", {"id": number})
    assert answer.status == 200, answer.content
    after = trials_of(user, number)
    assert [trial["id"] for trial in after] == [trial["id"] for trial in before]
    assert [trial["hparams"] for trial in after] == [trial["hparams"] for trial in before]
    assert after[0] == before[0]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert new["taskIds"] == [old["taskId"], f"{old['taskId']}-1"]
        assert (new["taskId"], new["startTime"], new["endTime"]) == (new["taskIds"][1], old["startTime"], None)
        times = [user.get(f"/api/v1/tasks/{task}").json["task"] for task in new["taskIds"]]
        assert times[0]["endTime"] <= ended <= times[1]["startTime"]
        assert times[1].get("endTime") is None
    for trial in after[1:]:
        play(user, staged(master, trial, trial["attempts"]), "again")
    wait_for(lambda: len(trials_of(user, number)) == 4, "the last trial")
    play(user, staged(master, trials_of(user, number)[3], 1), "last")
    wait_for(lambda: seen(user, number)["state"] == "STATE_COMPLETED", "its second end")
    assert {trial["state"] for trial in trials_of(user, number)} == {"STATE_COMPLETED"}
    answer = user.post(f"{EXPERIMENTS}/continue", {"id": number})
    assert (answer.status, answer.sentence.startswith("experiment has been completed, cannot")) == (409, True)


def test_a_search_that_is_far_meets_its_later_trials(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    """It asks for them one after the other, and for none that is not there already a second time."""
    space = {"x": {"type": "categorical", "vals": [1, 2, 3]}}
    searcher = {"name": "grid", "metric": "loss", "max_concurrent_trials": 1}
    number = experiment(config(searcher=searcher, hyperparameters=space))
    (first,) = jobs_of(master, user, number)
    assert first.lease().status == 200
    user.post(f"/api/v1/trials/{first.trial_id}/kill")
    first.leave(137, signal=9)
    wait_for(lambda: len(trials_of(user, number)) == 2, "the second trial")
    play(user, staged(master, trials_of(user, number)[1], 1), "second")
    wait_for(lambda: len(trials_of(user, number)) == 3, "the third trial")
    user.post(f"{EXPERIMENTS}/{number}/kill")
    wait_for(lambda: seen(user, number)["state"] == "STATE_CANCELED", "its end")
    assert user.post(f"{EXPERIMENTS}/continue", {"id": number}).status == 200
    found = trials_of(user, number)
    assert [len(trial["taskIds"]) for trial in found] == [2, 1, 1]
    play(user, staged(master, found[0], 2), "first again")
    wait_for(lambda: len(trials_of(user, number)[2]["taskIds"]) == 2, "the third trial to go on")
    play(user, staged(master, trials_of(user, number)[2], 2), "third again")
    wait_for(lambda: seen(user, number)["state"] == "STATE_COMPLETED", "its second end")
    assert [trial["hparams"]["x"] for trial in trials_of(user, number)] == [3, 2, 1]


def test_log_of_continued_trial_includes_all_its_tasks(
    master: MasterProcess, user: Api, experiment: Callable[..., int], admin: Api, engine: Engine
) -> None:
    number = experiment(config(max_restarts=0))
    (job,) = jobs_of(master, user, number)
    play(user, job, "one")
    wait_for(lambda: seen(user, number)["state"] == "STATE_COMPLETED", "its end")
    assert user.post(f"{EXPERIMENTS}/continue", {"id": number}).status == 200
    (trial,) = trials_of(user, number)
    play(user, staged(master, trial, 2), "two")
    wait_for(lambda: seen(user, number)["state"] == "STATE_COMPLETED", "its second end")
    logs = f"/api/v1/trials/{trial['id']}/logs"
    assert [line["log"] for line in user.lines(logs, sources="task")] == ["one", "two"]
    assert [line["log"] for line in user.lines(logs, sources="task", orderBy="ORDER_BY_DESC")] == ["two", "one"]
    assert [line["log"] for line in user.lines(logs, sources="task", limit=1)] == ["one"]
    (fields,) = user.lines(f"{logs}/fields")
    assert len(fields["allocationIds"]) == 2
    for task, words in zip(trial["taskIds"], ("one", "two"), strict=True):
        assert [line["log"] for line in user.lines(f"/api/v1/tasks/{task}/logs", sources="task")] == [words]
        assert user.get(f"/api/v1/tasks/{task}/context_directory").status == 200
    assert user.call("DELETE", f"{EXPERIMENTS}/{number}").status == 200
    wait_for(lambda: user.get(f"{EXPERIMENTS}/{number}").status == 404, "it to be gone")
    with engine.connect() as connection:
        for table in ("tasks", "task_logs", "allocations"):
            query = f"SELECT count(*) FROM {table} WHERE task_id LIKE '{number}.%'"
            assert connection.execute(text(query)).scalar_one() == 0, table


# -- beginning with what another trial has learnt -----------------------------------------------------------------


@pytest.mark.parametrize("by", ["source_trial_id", "source_checkpoint_uuid"])
def test_a_trial_begins_with_anothers_checkpoint(
    master: MasterProcess, user: Api, job: Job, experiment: Callable[..., int], by: str
) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    for number, key in enumerate((first, second), start=1):
        record = {"t": time.time() + number, "kind": "checkpoint", "uuid": key, "steps_completed": number}
        assert job.send([{**record, "resources": {"a": 1}}]).status == 200
    shown = user.get(f"/api/v1/checkpoints/{second}").json["checkpoint"]
    assert shown["storageId"] is not None
    assert shown["storageId"] == user.get(f"/api/v1/checkpoints/{first}").json["checkpoint"]["storageId"]
    source = {"source_trial_id": job.trial_id, "source_checkpoint_uuid": second}[by]
    other = experiment(config(searcher={"name": "single", "metric": "loss", by: source}))
    (trial,) = trials_of(user, other)
    assert trial["warmStartCheckpointUuid"] == second
    (fresh,) = jobs_of(master, user, other)
    work = fresh.lease().json["trial"]
    assert (work["latest_checkpoint"], work["steps_completed"]) == (second, 0)
    own = str(uuid.uuid4())
    record = {"t": time.time(), "kind": "checkpoint", "uuid": own, "steps_completed": 5, "resources": {"a": 1}}
    assert fresh.send([record]).status == 200
    assert fresh.lease().json["trial"]["latest_checkpoint"] == own
    assert user.get(f"/api/v1/trials/{job.trial_id}").json["trial"]["warmStartCheckpointUuid"] is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"source_trial_id": 99999999}, "searcher.source_trial_id: there is no trial 99999999"),
        ({"source_trial_id": "without"}, "has no checkpoint"),
        ({"source_checkpoint_uuid": "x"}, "searcher.source_checkpoint_uuid: 'x' is not the UUID of a checkpoint"),
        ({"source_checkpoint_uuid": str(uuid.UUID(int=7))}, "there is no checkpoint"),
    ],
)
def test_invalid_source_of_trial_is_rejected(user: Api, job: Job, source: Json, said: str) -> None:
    source = {key: job.trial_id if value == "without" else value for key, value in source.items()}
    answer = user.post(EXPERIMENTS, {"config": config(searcher={"name": "single", "metric": "loss", **source})})
    assert (answer.status, said in answer.sentence) == (400, True), answer.content


@pytest.mark.parametrize(
    ("searcher", "overrides", "said"),
    [
        (
            {"name": "adaptive_asha", "metric": "loss", "max_trials": 2, "max_time": 4, "time_metric": "batches"},
            "",
            "Unsupported searcher type provided: 'adaptive_asha'",
        ),
        (
            {"name": "random", "metric": "loss", "max_trials": 2},
            "max_restarts: 1",
            "override config is provided and experiment is not single searcher, got 'random' instead",
        ),
    ],
)
def test_which_searches_cannot_be_continued(
    user: Api, paused: Callable[..., int], searcher: Json, overrides: str, said: str
) -> None:
    number = paused(searcher=searcher)
    user.post(f"{EXPERIMENTS}/{number}/kill")
    answer = user.post(f"{EXPERIMENTS}/continue", {"id": number, "overrideConfig": overrides})
    assert (answer.status, said in answer.sentence) == (400, True), answer.content


def trials_of(user: Api, number: int) -> list[Json]:
    found = user.get(f"{EXPERIMENTS}/{number}/trials", sortBy="SORT_BY_ID").json["trials"]
    return sorted(found, key=lambda trial: int(trial["id"]))


def play(user: Api, job: Job, words: str) -> None:
    """A job from its beginning to its end."""
    assert job.lease("played-1").status == 200
    assert (
        job.send([{"t": time.time(), "stdtype": "stdout", "level": "INFO", "line": words}], stream="log-0").status
        == 200
    )
    job.send([job.validation(1, loss=0.5)])
    job.leave()
