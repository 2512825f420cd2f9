"""What people who move from Determined expect of its API, as its own end-to-end tests do."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api, Json
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.api.tasks import command, ended, launch
from tests.support.master import MasterProcess, wait_for

V1 = "/api/v1"
EDITOR = 5


# -- slots and pool of tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["notebook", "shell", "command"])
def test_slots_and_pool_of_a_task_are_not_a_templates(user: Api, kind: str) -> None:
    name = uuid.uuid4().hex
    shared = {"resources": {"slots": 100, "resource_pool": "x"}, "environment": {"environment_variables": ["A=B"]}}
    assert user.post(f"{V1}/templates/{name}", {"config": shared}).status == 200
    asked: Json = {"entrypoint": ["true"]} if kind == "command" else {}
    made = user.post(f"{V1}/{kind}s", {"config": asked, "templateName": name})
    assert made.status == 200, made.content
    resources = made.json["config"]["resources"]
    assert (resources["slots"], resources["resource_pool"]) == (1, "default")
    assert "A=B" in json.dumps(made.json["config"]["environment"])
    user.post(f"{V1}/{kind}s/{made.json[kind]['id']}/kill")


# -- workspaces -----------------------------------------------------------------------------------------------------


def test_a_workspace_is_deleted_while_its_killed_experiment_ends(master: MasterProcess, admin: Api) -> None:
    workspace, project = workspace_of(admin)
    number = create(admin, projectId=project)
    (job,) = jobs_of(master, admin, number)
    refused = admin.call("DELETE", f"{V1}/workspaces/{workspace}")
    assert (refused.status, "kill them first" in refused.sentence) == (409, True)
    assert job.lease().status == 200  # it runs: the kill takes a while
    assert admin.post(f"{V1}/experiments/{number}/kill").status == 200
    gone = admin.call("DELETE", f"{V1}/workspaces/{workspace}")
    assert (gone.status, gone.json["completed"]) == (200, False)
    assert admin.get(f"{V1}/workspaces/{workspace}").json["workspace"]["state"] == "WORKSPACE_STATE_DELETING"
    wait_for(lambda: admin.get(f"{V1}/workspaces/{workspace}").status == 404, "the end of the workspace")
    assert admin.get(f"{V1}/experiments/{number}").status == 404


def test_archived_workspace_rejects_archiving_its_projects(admin: Api) -> None:
    workspace, project = workspace_of(admin)
    assert admin.post(f"{V1}/workspaces/{workspace}/archive").status == 200
    for verb in ("archive", "unarchive"):
        answer = admin.post(f"{V1}/projects/{project}/{verb}")
        assert (answer.status, "is archived; unarchive that first" in answer.sentence) == (400, True)
    assert admin.post(f"{V1}/workspaces/{workspace}/unarchive").status == 200
    assert admin.post(f"{V1}/projects/{project}/archive").status == 200


@pytest.mark.parametrize("kind", ["notebook", "shell", "command"])
def test_tasks_of_a_deleted_workspace_leave_the_lists(admin: Api, kind: str) -> None:
    workspace, _ = workspace_of(admin)
    asked: Json = {"entrypoint": ["sleep", "600"]} if kind == "command" else {}
    mine = launch(admin, kind, config=asked, workspaceId=workspace)["id"]

    def listed(**query: object) -> list[str]:
        return [one["id"] for one in admin.get(f"{V1}/{kind}s", **query).json[f"{kind}s"]]

    assert mine in listed()
    assert listed(workspaceId=workspace) == [mine]
    assert admin.call("DELETE", f"{V1}/workspaces/{workspace}").status == 200
    assert mine not in listed()
    assert admin.get(f"{V1}/{kind}s", workspaceId=workspace).status == 404
    wait_for(lambda: admin.get(f"{V1}/workspaces/{workspace}").status == 404, "the end of the workspace")


@pytest.mark.parametrize("kind", ["notebook", "shell", "command", "tensorboard"])
def test_lists_of_a_workspace_that_one_may_not_see(rbac_admin: Api, kind: str) -> None:
    workspace, _ = workspace_of(rbac_admin)
    elsewhere, _ = workspace_of(rbac_admin)
    someone = person(rbac_admin)
    give(rbac_admin, EDITOR, someone.id, elsewhere)
    assert someone.api.get(f"{V1}/{kind}s", workspaceId=elsewhere).status == 200
    unseen = someone.api.get(f"{V1}/{kind}s", workspaceId=workspace)
    missing = someone.api.get(f"{V1}/{kind}s", workspaceId=12532459)
    assert (unseen.status, missing.status) == (404, 404)
    assert unseen.sentence == missing.sentence.replace("12532459", str(workspace))


# -- webhooks, pools ------------------------------------------------------------------------------------------------


def test_user_without_role_sees_webhooks_for_all_workspaces(rbac_admin: Api) -> None:
    workspace, _ = workspace_of(rbac_admin)
    trigger = {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"}}

    def made(**where: int) -> int:
        body = {"name": uuid.uuid4().hex, "url": "https://hooks.example/x", "triggers": [trigger], **where}
        return int(rbac_admin.post(f"{V1}/webhooks", body).json["webhook"]["id"])

    for_all, for_one = made(), made(workspaceId=workspace)
    someone, editor = person(rbac_admin), person(rbac_admin)
    give(rbac_admin, EDITOR, editor.id, workspace)

    def seen(api: Api) -> set[int]:
        return {one["id"] for one in api.get(f"{V1}/webhooks").json["webhooks"]} & {for_all, for_one}

    assert (seen(someone.api), seen(editor.api), seen(rbac_admin)) == (
        {for_all},
        {for_all, for_one},
        {for_all, for_one},
    )
    assert someone.api.call("DELETE", f"{V1}/webhooks/{for_all}").status == 403
    for number in (for_all, for_one):
        rbac_admin.call("DELETE", f"{V1}/webhooks/{number}")


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_refusal_of_the_default_pool_comes_before_the_roles(user: Api, rbac_admin: Api, method: str) -> None:
    body = {"workspaceNames": ["Uncategorized"]}
    for api in (user, person(rbac_admin).api):
        answer = api.call(method, f"{V1}/resource-pools/default/workspace-bindings", body)
        assert (answer.status, answer.sentence.partition(":")[0]) == (
            400,
            "default resource pool default cannot be bound to any workspace",
        )


# -- usage, tasks, priorities ---------------------------------------------------------------------------------------


def rows_of(admin: Api, number: int) -> list[dict[str, str]]:
    now = dt.datetime.now(dt.UTC)
    span = {
        "timestamp_after": (now - dt.timedelta(hours=1)).isoformat().replace("+00:00", "Z"),
        "timestamp_before": (now + dt.timedelta(hours=1)).isoformat().replace("+00:00", "Z"),
    }
    table = admin.get("/resources/allocation/allocations-csv", **span).content.decode()
    return [row for row in csv.DictReader(io.StringIO(table)) if row["experiment_id"] == str(number)]


@pytest.mark.parametrize("what", ["project", "experiment"])
def test_usage_names_the_workspace_in_which_a_job_ran(master: MasterProcess, admin: Api, what: str) -> None:
    (first, project), (second, target) = workspace_of(admin), workspace_of(admin)
    assert admin.call("PATCH", f"{V1}/projects/{target}", {"name": "another"}).status == 200
    names = {one: admin.get(f"{V1}/workspaces/{one}").json["workspace"]["name"] for one in (first, second)}
    number = create(admin, projectId=project)
    (job,) = jobs_of(master, admin, number)
    assert job.lease().status == 200
    job.leave()
    assert [row["workspace_name"] for row in rows_of(admin, number)] == [names[first]]
    if what == "project":
        moved = admin.post(f"{V1}/projects/{project}/move", {"destinationWorkspaceId": second, "projectId": project})
    else:
        moved = admin.post(f"{V1}/experiments/{number}/move", {"destinationProjectId": target, "experimentId": number})
    assert moved.status == 200, moved.content
    assert [row["workspace_name"] for row in rows_of(admin, number)] == [names[first]]


def test_the_removal_of_checkpoints_is_a_task_while_it_runs(user: Api, keeping: Job, engine: Engine) -> None:
    saved, number = str(uuid.uuid4()), keeping.experiment_id
    body = {"uuid": saved, "taskId": keeping.task_id, "metadata": {"steps_completed": 1}, "resources": {"f": 1}}
    made = keeping.api.post(f"{V1}/checkpoints", {**body, "allocationId": keeping.allocation_id})
    assert made.status == 200, made.content
    name = f"Checkpoint GC (Experiment {number})"

    def names() -> list[str]:
        return [one["name"] for one in user.get("/tasks").json.values()]

    assert name not in names()
    with engine.begin() as holding:  # the janitor waits for this row before it forgets the request
        holding.execute(text(f"SELECT 1 FROM experiments WHERE id = {number} FOR UPDATE"))
        with engine.begin() as asking:
            row = "INSERT INTO checkpoint_removals (checkpoint, globs) VALUES (:key, '[\"**/*\"]')"
            asking.execute(text(row), {"key": saved})
            asking.execute(text("NOTIFY trainmaster"))
        assert name in names()
    user.post(f"{V1}/experiments/{number}/kill")
    wait_for(lambda: name not in names(), "the end of the removal")


def test_a_command_that_was_just_killed_takes_a_priority(user: Api, admin: Api) -> None:
    number = command(user, "sleep", "600")
    assert user.post(f"{V1}/commands/{number}/kill").status == 200
    for _ in range(2):  # while it ends, and when it has ended
        answer = user.post(f"{V1}/commands/{number}/set_priority", {"priority": 1})
        assert answer.status == 200, answer.content
        ended(user, number)
    assert user.post(f"{V1}/commands/{number}/set_priority", {"priority": 0}).status == 400
    other = command(admin, "sleep", "600")
    admin.post(f"{V1}/commands/{other}/kill")
    ended(admin, other)
    assert user.post(f"{V1}/commands/{other}/set_priority", {"priority": 1}).status == 403


def test_an_experiment_continues_under_another_name(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    number = experiment(config(name="before"))
    user.post(f"{V1}/experiments/{number}/kill")
    wait_for(lambda: user.get(f"{V1}/experiments/{number}").json["experiment"].get("endTime"), "the end")
    answer = user.post(f"{V1}/experiments/continue", {"id": number, "overrideConfig": "name: after"})
    assert answer.status == 200, answer.content
    shown = user.get(f"{V1}/experiments/{number}").json["experiment"]
    assert (shown["name"], shown["config"]["name"]) == ("after", "after")
