"""Tasks that belong to no experiment: their jobs really run, on a master of their own with some slots."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.tasks import command, ended, generic, lines, state, until_ready
from tests.support.master import MasterProcess, free_port, wait_for

Json = dict[str, Any]


@pytest.fixture(scope="module")
def user(user_with_slots: Api) -> Api:
    return user_with_slots


@pytest.fixture(scope="module")
def admin(admin_with_slots: Api) -> Api:
    return admin_with_slots


def test_a_command_runs_with_its_files_and_leaves_its_log(user: Api) -> None:
    content = base64.b64encode(b"print('the file speaks')\n").decode()
    files = [{"path": "say.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    task_id = command(user, "python3", "say.py", files=files, description="says something")
    task = ended(user, task_id)
    assert task["taskType"] == "TASK_TYPE_COMMAND"
    assert "the file speaks" in lines(user, task_id)
    shown = user.get(f"/api/v1/commands/{task_id}").json
    assert (shown["command"]["state"], shown["command"]["description"]) == ("STATE_TERMINATED", "says something")
    assert shown["command"]["exitStatus"] == "The program ended with status 0"
    assert shown["config"]["entrypoint"] == ["python3", "say.py"]


def test_a_single_word_goes_to_the_shell(user: Api) -> None:
    task_id = command(user, "echo one; echo two | tr o 0")
    assert ended(user, task_id)["allocations"][0]["statusCode"] == 0
    assert {"one", "tw0"} <= set(lines(user, task_id))
    assert user.get(f"/api/v1/commands/{task_id}").json["config"]["entrypoint"] == ["echo one; echo two | tr o 0"]
    task_id = generic(user, "{entrypoint: ['echo generic; exit 3'], resources: {slots: 0}}")
    assert ended(user, task_id)["allocations"][0]["statusCode"] == 3
    assert "generic" in lines(user, task_id)


@pytest.mark.parametrize("config", [{}, {"entrypoint": []}, {"entrypoint": [], "work_dir": "/tmp"}])
def test_a_command_without_a_word_starts_and_ends_at_once(user: Api, config: Json) -> None:
    answer = user.post("/api/v1/commands", {"config": {**config, "resources": {"slots": 0}}})
    assert answer.status == 200, answer.content
    assert ended(user, answer.json["command"]["id"])["allocations"][0]["statusCode"] == 0


@pytest.mark.parametrize("text", ["{}", "{entrypoint: []}", "{resources: {slots: 0}}"])
def test_a_generic_task_wants_a_program(user: Api, text: str) -> None:
    answer = user.post("/api/v1/generic-tasks", {"config": text})
    assert (answer.status, "entrypoint: is required" in answer.sentence) == (400, True)


def test_command_gets_its_environment_and_reports_exit_status(user: Api) -> None:
    script = 'echo "task $DET_TASK_TYPE $DET_USER $WORD"; pwd; exit 3'
    task_id = command(
        user, "sh", "-c", script, work_dir="/tmp", environment={"environment_variables": ["WORD=a b"]}
    )  # fmt: skip
    task = ended(user, task_id)
    assert lines(user, task_id).count("task COMMAND determined a b") == 1
    assert "/tmp" in lines(user, task_id)
    assert (
        user.get(f"/api/v1/commands/{task_id}").json["command"]["exitStatus"].startswith("The program ended with exit")
    )
    assert task["allocations"][0]["statusCode"] == 3


def test_killing_a_command_ends_it(user: Api, admin: Api) -> None:
    task_id = command(user, "sleep", "600")
    (mine,) = wait_for(
        lambda: [
            job["full"]
            for job in user.get("/api/v1/job-queues-v2").json["jobs"]
            if job["full"]["entityId"] == task_id and job["full"]["summary"]["state"] == "STATE_SCHEDULED"
        ],
        "its place in the queue",
    )
    assert (mine["type"], mine["allocatedSlots"]) == ("TYPE_COMMAND", 1)
    assert admin.get("/api/v1/tasks/count").json["commands"] >= 1
    summaries = admin.get("/api/v1/tasks").json["allocationIdToSummary"].values()
    assert task_id in {one["taskId"] for one in summaries}
    assert user.post(f"/api/v1/commands/{task_id}/kill").json["command"]["id"] == task_id
    ended(user, task_id)
    assert user.post(f"/api/v1/commands/{task_id}/kill").status == 200  # again: nothing happens
    assert user.get(f"/api/v1/commands/{task_id}").json["command"]["state"] == "STATE_TERMINATED"
    assert user.post(f"/api/v1/commands/{task_id}/set_priority", {"priority": 3}).status == 200
    assert user.post(f"/api/v1/notebooks/{task_id}/kill").status == 404


def test_lists_are_filtered_and_sorted(user: Api, admin: Api) -> None:
    made = [command(api, "true", description=f"list {word}") for api, word in ((user, "b"), (admin, "a"))]
    found = user.get("/api/v1/commands", sortBy="SORT_BY_DESCRIPTION", orderBy="ORDER_BY_DESC").json["commands"]
    assert [one["id"] for one in found if one["id"] in made] == made
    mine = user.get("/api/v1/commands", users="determined").json["commands"]
    assert {one["username"] for one in mine} == {"determined"}
    page = user.get("/api/v1/commands", limit=1).json
    assert (len(page["commands"]), page["pagination"]["total"] >= 2) == (1, True)
    assert user.get("/api/v1/commands", workspaceId=99999999).status == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"config": {"entrypoint": "x", "recources": {}}}, "did you mean resources?"),
        ({"config": {"entrypoint": "x", "resources": {"slots_per_trial": 1}}}, "a task takes slots"),
        ({"config": {"entrypoint": "x", "resources": {"slots": 99}}}, "99"),
        ({"config": {"entrypoint": "x", "idle_timeout": "soon"}}, "a duration such as 30m"),
        ({"config": {"entrypoint": "x"}, "workspaceId": 99999999}, "There is no workspace"),
        ({"config": {"entrypoint": "x"}, "templateName": "no such"}, "There is no template"),
    ],
)
def test_invalid_command_is_rejected_with_reason(user: Api, body: Json, said: str) -> None:
    answer = user.post("/api/v1/commands", body)
    assert answer.status in (400, 404)
    assert said in answer.sentence


def test_templates_and_policies_count_for_tasks(user: Api, admin: Api) -> None:
    template = {"config": {"environment": {"environment_variables": ["FROM=template"]}, "resources": {"slots": 99}}}
    assert admin.post("/api/v1/templates/for-commands", template).status == 200
    policy = {"configPolicies": "{invariant_config: {work_dir: /var}, constraints: {resources: {max_slots: 2}}}"}
    assert admin.call("PUT", "/api/v1/config-policies/workspaces/1/TASKS", policy).status == 200
    try:
        asked = {"entrypoint": "echo $FROM; pwd", "work_dir": "/", "resources": {"slots": 0}}
        order = {"config": asked, "templateName": "for-commands"}
        made = user.post("/api/v1/commands", order).json
        assert (made["config"]["resources"]["slots"], made["config"]["work_dir"]) == (0, "/var")
        many = user.post("/api/v1/commands", {"config": {"entrypoint": "x", "resources": {"slots": 3}}})
        assert (many.status, "allows 2 slots at most" in many.sentence) == (400, True)
    finally:
        admin.call("DELETE", "/api/v1/config-policies/workspaces/1/TASKS")
    ended(user, made["command"]["id"])
    assert {"template", "/var"} <= set(lines(user, made["command"]["id"]))


def test_others_do_not_end_ones_command(running: MasterProcess, admin: Api, user: Api) -> None:
    task_id = command(admin, "sleep", "600")
    refused = user.post(f"/api/v1/commands/{task_id}/kill")
    assert (refused.status, "belongs to somebody else" in refused.sentence) == (403, True)
    admin.post(f"/api/v1/commands/{task_id}/kill")
    ended(admin, task_id)


# -- generic tasks ------------------------------------------------------------------------------------------------

SLEEPER = "entrypoint: [sleep, '600']\nresources: {slots: 0}\n"


def test_generic_task_is_paused_and_killed(user: Api) -> None:
    task_id = generic(user, SLEEPER)
    until_ready(user, task_id)
    assert user.post(f"/api/v1/tasks/{task_id}/unpause").status == 200  # it is not paused: nothing happens
    assert user.post(f"/api/v1/tasks/{task_id}/pause").status == 200
    wait_for(lambda: state(user, task_id) in ("PAUSED", "STOPPING_PAUSED"), "the pause")
    assert user.post(f"/api/v1/tasks/{task_id}/kill", {"taskId": task_id}).status == 200
    assert state(user, task_id) in ("STOPPING_CANCELED", "CANCELED")
    ended(user, task_id)
    assert state(user, task_id) == "CANCELED"
    over = user.post(f"/api/v1/tasks/{task_id}/pause")
    assert (over.status, "cannot be paused" in over.sentence) == (409, True)


def test_unpaused_task_resumes_from_what_it_saved(user: Api, tmp_path: Any) -> None:
    saves = f"""
from pathlib import Path
from trainmaster import core
saved = Path("{tmp_path}/saved")
if saved.exists():
    print("goes on from", saved.read_text())
else:
    with core.init() as context:
        Path("{tmp_path}/runs").touch()
        import time
        while not context.preempt.should_preempt():
            time.sleep(0.1)
    saved.write_text("where it was")
"""
    content = base64.b64encode(saves.encode()).decode()
    files = [{"path": "job.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    task_id = generic(user, "{entrypoint: python3 job.py, resources: {slots: 0}}", contextDirectory=files)
    wait_for(
        lambda: (tmp_path / "runs").exists() or user.get(f"/api/v1/tasks/{task_id}").json["task"].get("endTime"),
        "its start",
    )
    assert user.post(f"/api/v1/tasks/{task_id}/pause").status == 200, lines(user, task_id)
    wait_for(lambda: state(user, task_id) == "PAUSED", "the pause")
    assert user.post(f"/api/v1/tasks/{task_id}/unpause").status == 200
    task = ended(user, task_id)
    assert (state(user, task_id), len(task["allocations"])) == ("COMPLETED", 2)
    assert "goes on from where it was" in lines(user, task_id)


def test_a_family_is_ended_together(user: Api) -> None:
    parent = generic(user, SLEEPER, noPause=True)
    child = generic(user, SLEEPER, parentId=parent)
    grandchild = generic(user, "resources: {slots: 0}\nentrypoint: sleep 600", parentId=child)
    assert user.get(f"/api/v1/tasks/{child}").json["task"]["parentId"] == parent
    refused = user.post(f"/api/v1/tasks/{parent}/pause")
    assert (refused.status, "cannot be paused" in refused.sentence) == (409, True)
    assert user.post(f"/api/v1/tasks/{child}/kill", {"taskId": child}).status == 200
    ended(user, grandchild)
    assert state(user, parent) == "ACTIVE"
    other = generic(user, SLEEPER, parentId=parent)
    assert user.post(f"/api/v1/tasks/{other}/kill", {"taskId": other, "killFromRoot": True}).status == 200
    ended(user, parent)
    ended(user, other)
    orphan = user.post("/api/v1/generic-tasks", {"config": SLEEPER, "parentId": parent})
    assert orphan.status == 409


def test_forked_task_has_config_and_files_of_its_source(user: Api) -> None:
    content = base64.b64encode(b"print('forked')").decode()
    files = [{"path": "say.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    source = generic(user, "{entrypoint: python3 say.py, resources: {slots: 0}}", contextDirectory=files)
    fork = generic(user, "", forkedFrom=source)
    task = ended(user, fork)
    assert (task["forkedFrom"], "forked" in lines(user, fork)) == (source, True)
    assert user.get(f"/api/v1/tasks/{fork}/config").json == user.get(f"/api/v1/tasks/{source}/config").json
    assert user.get(f"/api/v1/tasks/{fork}/context_directory").json["b64Tgz"]


def test_task_shows_its_configuration_and_fork_overrides_it(user: Api, admin: Api) -> None:
    def given(task: str) -> Json:
        return dict(json.loads(user.get(f"/api/v1/tasks/{task}/config").json["config"]))

    variables = "environment: {environment_variables: [HF_TOKEN=secret, WORD=a]}"
    source = generic(user, f"{{entrypoint: [echo, source], description: d, {variables}, resources: {{slots: 0}}}}")
    shown = given(source)
    assert set(shown) == {"entrypoint", "description", "environment", "resources"}
    assert (shown["entrypoint"], shown["description"], "secret" in str(shown)) == (["echo", "source"], "d", False)
    fork = generic(user, "entrypoint: ['echo $HF_TOKEN $WORD']", forkedFrom=source)
    assert {**given(fork), "entrypoint": 0} == {**shown, "entrypoint": 0}
    assert (given(fork)["entrypoint"], bool(ended(user, fork))) == (["echo $HF_TOKEN $WORD"], True)
    assert "secret a" in lines(user, fork)
    ended(user, source)
    answer = user.post("/api/v1/generic-tasks", {"config": "entrypoint: [", "forkedFrom": source})
    assert (answer.status, "not valid YAML" in answer.sentence) == (400, True)


def test_a_workspace_goes_with_its_tasks(admin: Api) -> None:
    home = admin.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    order = {"config": {"entrypoint": "sleep 600", "resources": {"slots": 0}}, "workspaceId": home}
    task_id = admin.post("/api/v1/commands", order).json["command"]["id"]
    assert admin.call("DELETE", f"/api/v1/workspaces/{home}").status == 200
    wait_for(lambda: admin.get(f"/api/v1/tasks/{task_id}").status == 404, "the task's end, which is the workspace's")
    assert admin.post("/api/v1/commands", order).status == 404


# -- the master may be killed at any time -------------------------------------------------------------------------


def test_a_command_outlives_the_master(running: MasterProcess, user: Api, tmp_path: Any) -> None:
    task_id = command(
        user, "sh", "-c", f"touch {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo done"
    )
    wait_for(lambda: (tmp_path / "began").exists(), "its start")
    waiting = command(user, "echo", "later", resources={"slots": 4})
    port = free_port()
    ports = f"{{proxy_ports: [{{proxy_port: {port}}}]}}"
    served = f"cd {tmp_path} && exec python3 -m http.server --bind 127.0.0.1 {port}"
    service = generic(user, f"{{entrypoint: '{served}', resources: {{slots: 0}}, environment: {ports}}}")
    page = f"/proxy/{service}:{port}/began"
    wait_for(lambda: user.get(page).status == 200, "the service")
    running.kill()
    (tmp_path / "go").touch()
    running.start()
    task = ended(user, task_id)
    assert (len(task["allocations"]), lines(user, task_id).count("done")) == (1, 1)
    assert user.get(page).status == 200
    user.post(f"/api/v1/tasks/{service}/kill", {"taskId": service})
    ended(user, waiting)
    assert lines(user, waiting).count("later") == 1
