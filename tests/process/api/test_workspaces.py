"""Workspaces and projects: their whole life, what they pass on to experiments, and who may touch them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import config
from tests.support.master import wait_for

Json = dict[str, Any]
WORKSPACES = "/api/v1/workspaces"
PROJECTS = "/api/v1/projects"


def fresh(word: str) -> str:
    return f"{word} {uuid.uuid4().hex[:8]}"


def made(answer: Any, key: str) -> Json:
    assert answer.status == 200, answer.content
    found: Json = answer.json[key]
    return found


@pytest.fixture
def workspace(user: Api) -> Json:
    return made(user.post(WORKSPACES, {"name": fresh("vision")}), "workspace")


@pytest.fixture
def project(user: Api, workspace: Json) -> Json:
    body = {"name": fresh("cats"), "workspaceId": workspace["id"], "description": "of the house"}
    return made(user.post(f"{WORKSPACES}/{workspace['id']}/projects", body), "project")


@pytest.fixture
def paused(user: Api) -> Iterator[Callable[..., Json]]:
    """Makes experiments that never start."""
    numbers: list[int] = []

    def make(**body: Any) -> Json:
        text = body.pop("text", None) or config(name="paused")
        found = made(user.post("/api/v1/experiments", {"config": text, "activate": False, **body}), "experiment")
        numbers.append(found["id"])
        return found

    yield make
    for number in numbers:
        user.post(f"/api/v1/experiments/{number}/kill")


# -- workspaces ----------------------------------------------------------------------------------------------------


def test_a_workspace_from_its_making_to_its_end(user: Api) -> None:
    name = fresh("vision")
    first = made(user.post(WORKSPACES, {"name": f" {name} "}), "workspace")
    assert (first["name"], first["username"], first["archived"], first["pinned"]) == (name, "determined", False, True)
    assert (first["numProjects"], first["numExperiments"], first["immutable"]) == (0, 0, False)
    assert first["state"] == "WORKSPACE_STATE_UNSPECIFIED"
    path = f"{WORKSPACES}/{first['id']}"
    assert user.post(WORKSPACES, {"name": name}).status == 409
    changed = made(user.call("PATCH", path, {"name": f"{name} 2"}), "workspace")
    assert changed == {**first, "name": f"{name} 2"}
    assert made(user.get(path), "workspace") == changed
    assert user.call("DELETE", path).json == {"completed": True}
    assert user.get(path).status == 404


@pytest.mark.parametrize("name", ["", "   ", "x" * 81, 3, None])
def test_names_that_are_none(user: Api, name: Any) -> None:
    assert user.post(WORKSPACES, {"name": name}).status == 400


def test_the_first_workspace_stays_as_it_is(admin: Api) -> None:
    path = f"{WORKSPACES}/1"
    for answer in (
        admin.call("PATCH", path, {"name": "mine"}),
        admin.call("DELETE", path),
        admin.post(f"{path}/archive"),
        admin.call("DELETE", f"{PROJECTS}/1"),
        admin.call("PATCH", f"{PROJECTS}/1", {"name": "mine"}),
    ):
        assert answer.status == 400
        assert "Uncategorized" in answer.sentence


def test_lists_of_workspaces(user: Api, admin: Api) -> None:
    tag = uuid.uuid4().hex[:8]
    ids = [made(user.post(WORKSPACES, {"name": f"{tag} {word}"}), "workspace")["id"] for word in ("b", "A", "c")]
    other = made(admin.post(WORKSPACES, {"name": f"{tag} d"}), "workspace")["id"]

    def found(**query: Any) -> list[int]:
        return [entry["id"] for entry in user.get(WORKSPACES, **{"name": tag.upper(), **query}).json["workspaces"]]

    assert found() == [*ids, other]
    assert found(orderBy="ORDER_BY_DESC") == [other, *ids[::-1]]
    assert found(sortBy="SORT_BY_NAME") == [ids[1], ids[0], ids[2], other]  # whatever their case
    assert found(sortBy="SORT_BY_NAME", orderBy="ORDER_BY_DESC") == [other, ids[2], ids[0], ids[1]]
    assert found(limit=2, offset=1) == [ids[1], ids[2]]
    assert found(users="admin") == [other]
    assert found(userIds=1) == [other]
    assert found(nameCaseSensitive=f"{tag} A") == [ids[1]]
    assert found(nameCaseSensitive=f"{tag} a") == []
    assert user.post(f"{WORKSPACES}/{ids[0]}/archive").status == 200
    assert found(archived=True) == [ids[0]]
    assert found(archived=False) == [ids[1], ids[2], other]
    assert found(pinned=True) == ids  # whoever makes one has it pinned
    for number in ids:
        assert user.post(f"{WORKSPACES}/{number}/unpin").status == 200
    assert user.post(f"{WORKSPACES}/{other}/pin").status == 200
    assert found(pinned=True) == [other]
    mine = admin.get(f"{WORKSPACES}/{other}").json["workspace"]
    assert (mine["pinned"], user.get(f"{WORKSPACES}/{other}").json["workspace"]["pinned"]) == (True, True)
    for _ in range(2):
        assert user.post(f"{WORKSPACES}/{other}/unpin").status == 200
    assert found(pinned=True) == []
    assert user.get(WORKSPACES, sortBy="SORT_BY_COLOUR").status == 400
    assert user.get(WORKSPACES, offset=10_000).status == 400


def test_others_workspaces_cannot_be_changed(user: Api, admin: Api) -> None:
    theirs = made(admin.post(WORKSPACES, {"name": fresh("theirs")}), "workspace")
    path = f"{WORKSPACES}/{theirs['id']}"
    for answer in (
        user.call("PATCH", path, {"name": "mine"}),
        user.post(f"{path}/archive"),
        user.post(f"{path}/unarchive"),
        user.call("DELETE", path),
    ):
        assert answer.status == 403
    assert made(user.get(path), "workspace")["name"] == theirs["name"]
    assert admin.call("DELETE", path).status == 200


def test_workspace_storage_fills_what_experiments_leave_open(
    user: Api, workspace: Json, project: Json, paused: Callable[..., Json], tmp_path: Path
) -> None:
    storage = {"type": "shared_fs", "host_path": str(tmp_path), "save_trial_latest": 3}
    path = f"{WORKSPACES}/{workspace['id']}"
    changed = user.call(
        "PATCH",
        path,
        {"checkpointStorageConfig": storage, "defaultComputeResourcePool": "default", "defaultAuxPool": ""},
    )
    assert made(changed, "workspace")["checkpointStorageConfig"] == storage
    assert made(user.get(path), "workspace")["defaultComputePool"] == "default"
    inside = paused(projectId=project["id"])
    assert inside["config"]["checkpoint_storage"]["host_path"] == str(tmp_path)
    assert inside["config"]["checkpoint_storage"]["save_trial_latest"] == 3
    mine = {"type": "shared_fs", "host_path": "/elsewhere"}
    own = paused(projectId=project["id"], text=config(checkpoint_storage=mine))
    assert own["config"]["checkpoint_storage"]["host_path"] == "/elsewhere", "what the file says goes first"
    assert own["config"]["checkpoint_storage"]["save_trial_latest"] == 3
    outside = paused()
    assert outside["config"]["checkpoint_storage"]["host_path"] != str(tmp_path)
    named = paused(text=config(workspace=workspace["name"], project=project["name"]))
    assert (named["projectId"], named["workspaceId"]) == (project["id"], workspace["id"])
    gone = made(user.call("PATCH", path, {"checkpointStorageConfig": {}}), "workspace")
    assert gone["checkpointStorageConfig"] is None


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"defaultComputePool": "nowhere"}, "nowhere"),
        ({"checkpointStorageConfig": {"type": "shared_fs"}}, "host_path"),
        ({"checkpointStorageConfig": {"type": "tape"}}, "tape"),
        ({"agentUserGroup": {"agentUid": 4711}}, "agentUser is missing"),
        ({"agentUserGroup": {"agentGroup": "root"}}, "root"),
        ({"agentUserGroup": {"agentUser": "root", "agentUid": 0, "agentGid": 0, "agentGroup": "root"}}, "root"),
        ({"clusterQuotaPairs": {"a": 3}}, "Kubernetes"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_settings_that_cannot_be(admin: Api, workspace: Json, body: Json, wanted: str) -> None:
    for answer in (
        admin.post(WORKSPACES, {"name": fresh("refused"), **body}),
        admin.call("PATCH", f"{WORKSPACES}/{workspace['id']}", body),
    ):
        assert answer.status == 400, answer.content
        assert wanted in answer.sentence


def test_the_account_of_a_workspace(admin: Api, user: Api, workspace: Json) -> None:
    account = {"agentUser": "visionaries", "agentUid": 4711, "agentGid": 4711, "agentGroup": "vision"}
    path = f"{WORKSPACES}/{workspace['id']}"
    for refused in (
        user.call("PATCH", path, {"agentUserGroup": account}),
        user.post(WORKSPACES, {"name": fresh("refused"), "agentUserGroup": account}),
    ):
        assert (refused.status, "administrator" in refused.sentence) == (403, True)
    assert made(user.get(path), "workspace")["agentUserGroup"] is None
    assert made(admin.call("PATCH", path, {"agentUserGroup": account}), "workspace")["agentUserGroup"] == account


@pytest.mark.parametrize("part", [{"agentGid": 4711, "agentGroup": "vision"}, {"agentUser": "ada"}])
def test_the_account_of_a_workspace_may_come_in_parts(admin: Api, part: Json) -> None:
    """What is not said stays open; another change leaves it, and an empty one takes it away."""
    whole = dict.fromkeys(("agentUid", "agentUser", "agentGid", "agentGroup")) | part
    found = made(admin.post(WORKSPACES, {"name": fresh("parts"), "agentUserGroup": part}), "workspace")
    path = f"{WORKSPACES}/{found['id']}"
    assert found["agentUserGroup"] == whole
    assert made(admin.call("PATCH", path, {"name": fresh("parts")}), "workspace")["agentUserGroup"] == whole
    assert made(admin.call("PATCH", path, {"agentUserGroup": {}}), "workspace")["agentUserGroup"] is None
    assert admin.call("DELETE", path).json == {"completed": True}


def test_rename_of_first_workspace_fails_before_permission_check(user: Api, admin: Api) -> None:
    """A name for the first workspace is refused as such to everybody; to archive it is not others' affair."""
    for caller in (user, admin):
        refused = caller.call("PATCH", f"{WORKSPACES}/1", {"name": "mine"})
        assert (refused.status, "immutable" in refused.sentence) == (400, True)
    for method, path in (("POST", "/archive"), ("POST", "/unarchive"), ("DELETE", "")):
        assert user.call(method, f"{WORKSPACES}/1{path}", {}).status == 403
        assert admin.call(method, f"{WORKSPACES}/1{path}", {}).status == 400


# -- projects ------------------------------------------------------------------------------------------------------


def test_a_project_from_its_making_to_its_end(user: Api, workspace: Json) -> None:
    at = f"{WORKSPACES}/{workspace['id']}/projects"
    first = made(user.post(at, {"name": "cats", "workspaceId": workspace["id"]}), "project")
    assert (first["name"], first["workspaceName"], first["notes"]) == ("cats", workspace["name"], [])
    assert 1 <= len(first["key"]) <= 5
    assert first["key"].startswith("CAT")
    assert user.post(at, {"name": "cats", "workspaceId": workspace["id"]}).status == 409
    path = f"{PROJECTS}/{first['id']}"
    key = uuid.uuid4().hex[:5]
    changed = made(user.call("PATCH", path, {"name": "dogs", "description": "loud", "key": key}), "project")
    assert changed == {**first, "name": "dogs", "description": "loud", "key": key}
    assert made(user.get(f"{PROJECTS}/key/{key}"), "project") == changed
    assert user.get(f"{PROJECTS}/key/none0").status == 404
    assert made(user.get(f"{WORKSPACES}/{workspace['id']}"), "workspace")["numProjects"] == 1
    taken = made(user.post(at, {"name": "other", "workspaceId": workspace["id"]}), "project")
    assert user.call("PATCH", f"{PROJECTS}/{taken['id']}", {"key": key.upper()}).status == 409
    for wrong in ("", "toolong", "a b", "é"):
        assert user.call("PATCH", path, {"key": wrong}).status == 400
    assert user.call("DELETE", path).json == {"completed": True}
    assert user.get(path).status == 404


def test_keys_are_made_until_they_run_out_of_letters(user: Api, workspace: Json) -> None:
    at = f"{WORKSPACES}/{workspace['id']}/projects"
    keys = [
        made(user.post(at, {"name": f"猫 {i}", "workspaceId": workspace["id"]}), "project")["key"] for i in (1, 1.5)
    ]
    assert len(set(keys)) == 2
    assert all(1 <= len(key) <= 5 and key.isalnum() for key in keys)


def test_lists_of_projects(user: Api, workspace: Json, paused: Callable[..., Json]) -> None:
    at = f"{WORKSPACES}/{workspace['id']}/projects"
    ids = []
    for index, name in enumerate(("bravo", "alpha", "charlie")):
        body = {"name": name, "workspaceId": workspace["id"], "description": str(2 - index)}
        ids.append(made(user.post(at, body), "project")["id"])
    paused(projectId=ids[2])

    def found(**query: Any) -> list[int]:
        return [entry["id"] for entry in user.get(at, **query).json["projects"]]

    assert found() == ids
    assert found(sortBy="SORT_BY_NAME") == [ids[1], ids[0], ids[2]]
    assert found(sortBy="SORT_BY_DESCRIPTION") == ids[::-1]
    assert found(sortBy="SORT_BY_CREATION_TIME", orderBy="ORDER_BY_DESC") == ids[::-1]
    assert found(sortBy="SORT_BY_LAST_EXPERIMENT_START_TIME")[0] == ids[2]
    assert found(name="ALPH") == [ids[1]]
    assert found(limit=1, offset=-1) == [ids[2]]
    assert found(users="admin") == []
    counted = user.get(f"{PROJECTS}/{ids[2]}").json["project"]
    assert (counted["numExperiments"], counted["numActiveExperiments"]) == (1, 1)
    assert counted["lastExperimentStartedAt"] is not None
    everywhere = user.get(f"{WORKSPACES}/0/projects").json["projects"]
    assert {1, *ids} <= {entry["id"] for entry in everywhere}
    assert user.get(f"{WORKSPACES}/99999999/projects").status == 404


def test_uncategorized_takes_no_projects(user: Api, admin: Api, project: Json) -> None:
    for api in (user, admin):
        refused = api.post("/api/v1/workspaces/1/projects", {"name": uuid.uuid4().hex})
        assert (refused.status, "immutable" in refused.sentence) == (400, True)
    move = {"destinationWorkspaceId": 1, "projectId": project["id"]}
    assert user.post(f"/api/v1/projects/{project['id']}/move", move).status == 400


def test_archived_workspace_and_project_reject_changes(user: Api, workspace: Json, project: Json) -> None:
    at = f"{WORKSPACES}/{workspace['id']}"
    order = {"config": config(), "activate": False, "projectId": project["id"]}
    assert user.post(f"{PROJECTS}/{project['id']}/archive").status == 200
    assert user.post("/api/v1/experiments", order).status == 400
    assert user.call("PATCH", f"{PROJECTS}/{project['id']}", {"name": "new"}).status == 400
    assert user.get(f"{at}/projects", archived=True).json["pagination"]["total"] == 1
    assert user.post(f"{PROJECTS}/{project['id']}/unarchive").status == 200
    assert user.post(f"{at}/archive").status == 200
    assert user.get(f"{PROJECTS}/{project['id']}").json["project"]["archived"]
    assert user.post(f"{at}/projects", {"name": "more"}).status == 400
    assert user.post(f"{PROJECTS}/{project['id']}/unarchive").status == 400
    assert user.call("PATCH", at, {"name": fresh("renamed")}).status == 400
    assert user.post(f"{at}/unarchive").status == 200
    assert not user.get(f"{PROJECTS}/{project['id']}").json["project"]["archived"]


def test_notes(user: Api, project: Json) -> None:
    at = f"{PROJECTS}/{project['id']}/notes"
    assert user.post(at, {"name": "one", "contents": "first"}).json["notes"] == [{"name": "one", "contents": "first"}]
    two = [{"name": "one", "contents": "changed"}, {"name": "two", "contents": ""}]
    assert user.call("PUT", at, {"projectId": project["id"], "notes": two}).json["notes"] == two
    assert user.get(f"{PROJECTS}/{project['id']}").json["project"]["notes"] == two


def test_moving_a_project(user: Api, project: Json, paused: Callable[..., Json]) -> None:
    inside = paused(projectId=project["id"])
    target = made(user.post(WORKSPACES, {"name": fresh("target")}), "workspace")
    body = {"projectId": project["id"], "destinationWorkspaceId": target["id"]}
    assert user.post(f"{PROJECTS}/{project['id']}/move", body).status == 200
    assert user.get(f"{PROJECTS}/{project['id']}").json["project"]["workspaceId"] == target["id"]
    seen = user.get(f"/api/v1/experiments/{inside['id']}").json["experiment"]
    assert (seen["workspaceName"], seen["projectName"]) == (target["name"], project["name"])
    assert user.post(f"{PROJECTS}/{project['id']}/move", {"destinationWorkspaceId": 99999999}).status == 404


def test_deleting_takes_the_experiments_along(
    user: Api, workspace: Json, project: Json, paused: Callable[..., Json]
) -> None:
    inside = paused(projectId=project["id"])
    path = f"{WORKSPACES}/{workspace['id']}"
    refused = user.call("DELETE", path)
    assert refused.status == 409
    assert str(inside["id"]) in refused.sentence
    user.post(f"/api/v1/experiments/{inside['id']}/kill")
    assert user.call("DELETE", path).json == {"completed": False}
    wait_for(lambda: user.get(path).status == 404, "the workspace to be gone")
    assert user.get(f"{PROJECTS}/{project['id']}").status == 404
    assert user.get(f"/api/v1/experiments/{inside['id']}").status == 404


def test_deleting_kills_the_tasks_first(user: Api, workspace: Json) -> None:
    """Also what cannot be asked to leave. Those of other workspaces go on."""
    other = made(user.post(WORKSPACES, {"name": fresh("other")}), "workspace")
    body = {"config": {"entrypoint": ["sleep", "600"], "resources": {"slots": 0}}}
    here, there = (
        made(user.post("/api/v1/commands", {**body, "workspaceId": number}), "command")["id"]
        for number in (workspace["id"], other["id"])
    )
    notebook = made(user.post("/api/v1/notebooks", {"workspaceId": workspace["id"]}), "notebook")["id"]
    path = f"{WORKSPACES}/{workspace['id']}"
    assert user.call("DELETE", path).json == {"completed": False}
    refused = user.post("/api/v1/commands", {**body, "workspaceId": workspace["id"]})
    assert refused.status in (404, 409)  # it may be gone by now
    wait_for(lambda: user.get(path).status == 404, "the workspace to be gone")
    for kind, task in (("command", here), ("notebook", notebook)):
        assert user.get(f"/api/v1/{kind}s/{task}").status == 404
        listed = user.get(f"/api/v1/{kind}s", workspaceId=workspace["id"])
        assert (listed.status, "not found" in listed.sentence) == (404, True)
    assert not user.get(f"/api/v1/tasks/{there}").json["task"].get("endTime")
    assert user.post(f"/api/v1/commands/{there}/kill").status == 200
    wait_for(lambda: user.get(f"/api/v1/tasks/{there}").json["task"].get("endTime"), "the end of the other command")
    assert user.call("DELETE", f"{WORKSPACES}/{other['id']}").json == {"completed": True}


def test_tasks_do_not_find_an_archived_workspace(user: Api, workspace: Json) -> None:
    path = f"{WORKSPACES}/{workspace['id']}"
    assert user.post(f"{path}/archive").status == 200
    for kind, said in (("command", {"entrypoint": ["true"]}), ("notebook", {}), ("shell", {})):
        refused = user.post(f"/api/v1/{kind}s", {"config": said, "workspaceId": workspace["id"]})
        assert (refused.status, "not found" in refused.sentence) == (404, True), refused.content


# -- pools ---------------------------------------------------------------------------------------------------------


def test_default_pools_serve_everybody(admin: Api, workspace: Json) -> None:
    at = "/api/v1/resource-pools/default/workspace-bindings"
    assert admin.get(at).json["workspaceIds"] == []
    assert admin.get(f"{WORKSPACES}/{workspace['id']}/available-resource-pools").json["resourcePools"] == ["default"]
    for method in ("POST", "PUT"):
        assert admin.call(method, at, {"workspaceIds": [workspace["id"]]}).status == 400
    assert admin.call("DELETE", at, {"workspaceIds": [workspace["id"]]}).status == 404
    assert admin.get("/api/v1/resource-pools/nowhere/workspace-bindings").status == 404
