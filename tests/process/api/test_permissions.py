"""Who may call what: every role against every endpoint, on a master that uses roles and on one that does not."""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.api.http import TIMEOUT, Api
from tests.support.api.jobs import config
from tests.support.api.people import give, person
from trainmaster.master.app import PARTS
from trainmaster.master.http.permissions import ENDPOINTS, MASKED, Rule
from trainmaster.master.services.access.permissions import ADMINISTRATORS, ROLES, Permission, Role

Json = dict[str, Any]
ROUTES = sorted(
    f"{method} {route.path}"
    for part in PARTS
    for route in part.router.routes
    for method in getattr(route, "methods", ("GET",))  # a WebSocket begins as a GET
)


def things(rbac_admin: Api) -> dict[str, Any]:
    """One of everything in a workspace of its own, by the word that addresses use."""
    word = uuid.uuid4().hex[:8]
    workspace = rbac_admin.post("/api/v1/workspaces", {"name": word}).json["workspace"]["id"]
    project = rbac_admin.post(f"/api/v1/workspaces/{workspace}/projects", {"name": "p"}).json["project"]
    body = {"config": config(), "activate": False, "projectId": project["id"]}
    experiment = rbac_admin.post("/api/v1/experiments", body).json["experiment"]["id"]
    rbac_admin.post(f"/api/v1/experiments/{experiment}/kill")  # nothing is to start here
    (trial,) = rbac_admin.get(f"/api/v1/experiments/{experiment}/trials").json["trials"]
    model = rbac_admin.post("/api/v1/models", {"name": f"m-{word}", "workspaceId": workspace}).json["model"]["name"]
    template = f"t-{word}"
    rbac_admin.post(f"/api/v1/templates/{template}", {"config": {}, "workspaceId": workspace})
    order = {"config": {"entrypoint": "true"}, "workspaceId": workspace}
    command = rbac_admin.post("/api/v1/commands", order).json["command"]["id"]
    rbac_admin.post(f"/api/v1/commands/{command}/kill")
    made = rbac_admin.post("/api/v1/groups", {"name": word})
    group = made.json["group"]["groupId"] if made.status == 200 else 99999999
    return {
        "workspace_id": workspace,
        "project_id": project["id"],
        "key": project["key"],
        "experiment_id": experiment,
        "trial_id": trial["id"],
        "task_id": trial["taskId"],
        "allocation_id": f"{trial['taskId']}.1",
        "command_id": command,
        "notebook_id": "x",
        "shell_id": "x",
        "tensorboard_id": "x",
        "uuid": str(uuid.UUID(int=0)),
        "checkpoint_uuid": str(uuid.UUID(int=0)),
        "model_name": model,
        "version": 1,
        "alias": "x",
        "template_name": template,
        "group_id": group,
        "name": "default",
        "pool_name": "default",
        "agent_id": "a",
        "slot_id": 0,
        "token": "det-x",
        "token_id": 99999999,
        "session_id": 99999999,
        "number": 1,
        "label": "x",
        "webhook_id": 99999999,
        "workload_type": "EXPERIMENT",
        "external_experiment_id": "x",
        "external_trial_id": "x",
        "username": "admin",
    }


def calls(there: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Method, address and table's key of every endpoint that users call; what removes comes last."""
    users = [key for key, rule in ENDPOINTS.items() if rule not in (Rule.OPEN, Rule.AGENT, Rule.OWN_JOB, Rule.PROXY)]
    users.remove("POST /api/v1/auth/logout")
    users.remove("DELETE /session")
    for key in sorted(users, key=lambda key: (harm(key), key)):
        method, path = key.split(" ")
        yield method, path.replace(":path}", "}").format_map(there), key


def harm(key: str) -> int:
    """How much of what later calls need is gone after a call. With a workspace go the roles in it."""
    if key == "DELETE /api/v1/workspaces/{workspace_id}":
        return 4
    if key == "DELETE /api/v1/projects/{project_id}":
        return 3
    return 2 if key.startswith("DELETE") else int(key.endswith("/archive"))


# What would be started with nothing said is asked for with what cannot be.
STARTING = dict.fromkeys(
    ("/api/v1/commands", "/api/v1/notebooks", "/api/v1/shells", "/api/v1/tensorboards"),
    '{"config": {"no such key": 1}}',
) | {"/api/v1/experiments": '{"config": "no such key: 1"}'}


class Walker:
    """Calls one endpoint after the other as one user; a connection for all of it, as there are many."""

    def __init__(self, api: Api) -> None:
        parts = urlsplit(api.url)
        assert parts.hostname
        self._headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)

    def __enter__(self) -> Walker:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def refused(self, method: str, path: str) -> bool:
        """Whether it answers 403; something else than a failure it must answer."""
        return self.status(method, path) == 403

    def status(self, method: str, path: str) -> int:
        body = STARTING.get(path, "{}")
        self._connection.request(method, path, None if method == "GET" else body, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status < 500, (method, path, content)
        assert answer.status != 401, (method, path)
        return answer.status


# -- the table ----------------------------------------------------------------------------------------------------


def test_every_endpoint_has_an_entry_and_every_entry_an_endpoint() -> None:
    assert set(ENDPOINTS) == {r for r in ROUTES if not r.startswith("HEAD") or "/proxy/" in r}


def test_only_open_endpoints_answer_anonymous_callers(anonymous: Api) -> None:
    there = dict.fromkeys(things_named(), "1")
    for key, rule in ENDPOINTS.items():
        if rule in (Rule.OPEN, Rule.PROXY):  # test_proxy.py asks the latter
            continue
        method, path = key.split(" ")
        answer = anonymous.call(method, path.replace(":path}", "}").format_map(there), None if method == "GET" else {})
        assert answer.status in (401, 400, 404) if rule is Rule.AGENT else answer.status == 401, key


def things_named() -> set[str]:
    import string

    return {name for key in ENDPOINTS for _, name, _, _ in string.Formatter().parse(key) if name}


@pytest.fixture(scope="module")
def elsewhere(rbac_admin: Api) -> Json:
    return things(rbac_admin)


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_each_role_in_a_workspace_or_everywhere(rbac_admin: Api, elsewhere: Json, role: Role) -> None:
    """Allowed or 403, for every endpoint with a permission, in the workspace of the role; in another, of which the role
    shows nothing, the answer is the one for what is not there."""
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    here = {**things(rbac_admin), "user_id": user}
    give(rbac_admin, role.id, user, None if role.anywhere_only else here["workspace_id"])
    with Walker(api) as walker:
        for method, path, key in calls(here):
            rule = ENDPOINTS[key]
            if isinstance(rule, Permission):
                allowed = {rule, OF_OTHERS.get(key, rule)} <= role.permissions
                assert walker.refused(method, path) is not allowed, f"{role.name}: {key}"
        if role.anywhere_only:
            return
        for method, path, key in calls({**elsewhere, "user_id": user}):
            if isinstance(ENDPOINTS[key], Permission) and any(f"{{{name}}}" in key for name in PLACED):
                # Who may delete the workspace has done so by now, and holds nothing any more.
                lacks = ENDPOINTS[key] not in role.permissions or Permission.DELETE_WORKSPACE in role.permissions
                assert walker.status(method, path) == (403 if lacks else 404), f"{role.name} elsewhere: {key}"


# What is asked for beside the table's entry when the thing is somebody else's, as all are here.
OF_OTHERS = {"DELETE /api/v1/models/{model_name}": Permission.DELETE_OTHER_USER_MODEL_REGISTRY}
# Words of addresses that stand for something in a workspace. Of no checkpoint and no allocation there is one here.
PLACED = (
    *("workspace_id", "project_id", "experiment_id", "trial_id", "task_id", "command_id"),
    *("model_name", "template_name"),
)


def test_without_a_role_there_is_nothing(rbac_admin: Api, elsewhere: Json) -> None:
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    with Walker(api) as walker:
        for method, path, key in calls({**elsewhere, "user_id": user}):
            assert walker.refused(method, path) is isinstance(ENDPOINTS[key], Permission), key


def test_without_roles_only_administration_is_refused(user: Api) -> None:
    me = user.get("/api/v1/me").json["user"]["id"]
    with Walker(user) as walker:
        for method, path, key in calls({**things(user), "user_id": me}):
            rule = ENDPOINTS[key]
            expected = isinstance(rule, Permission) and rule in ADMINISTRATORS and key not in MASKED
            assert walker.refused(method, path) is expected, key


# -- what follows ---------------------------------------------------------------------------------------------------


def test_lists_show_only_what_user_may_see(rbac_admin: Api) -> None:
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    here, elsewhere = things(rbac_admin), things(rbac_admin)
    give(rbac_admin, 4, user, here["workspace_id"])
    for path, key, name in (
        ("/api/v1/workspaces", "workspaces", "workspace_id"),
        ("/api/v1/workspaces/0/projects", "projects", "project_id"),
        ("/api/v1/experiments", "experiments", "experiment_id"),
    ):
        assert [entry["id"] for entry in api.get(path).json[key]] == [here[name]]
        seen = [entry["id"] for entry in rbac_admin.get(path).json[key]]
        assert {here[name], elsewhere[name]} <= set(seen)
    assert [entry["name"] for entry in api.get("/api/v1/models").json["models"]] == [here["model_name"]]
    assert [entry["name"] for entry in api.get("/api/v1/templates").json["templates"]] == [here["template_name"]]
    found = api.post("/api/v1/experiments-search", {}).json["experiments"]
    assert [entry["experiment"]["id"] for entry in found] == [here["experiment_id"]]
    for path in ("/api/v1/trials/metrics/trial_metrics", "/api/v1/trials/metrics/training_metrics"):
        assert api.get(path, trialIds=here["trial_id"]).status == 200
        assert api.get(path, trialIds=[here["trial_id"], elsewhere["trial_id"]]).status == 404


def test_objects_named_in_body_need_permission_too(rbac_admin: Api) -> None:
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    here, elsewhere = things(rbac_admin), things(rbac_admin)
    give(rbac_admin, 5, user, here["workspace_id"])
    order = {"config": config(), "activate": False}
    assert api.post("/api/v1/experiments", {**order, "projectId": here["project_id"]}).status == 200
    rbac_admin.post(f"/api/v1/experiments/{elsewhere['experiment_id']}/kill")
    refusals = [
        api.post("/api/v1/experiments", {**order, "projectId": elsewhere["project_id"]}),
        api.post(
            "/api/v1/experiments", {**order, "projectId": here["project_id"], "parentId": elsewhere["experiment_id"]}
        ),
        api.post(
            "/api/v1/experiments", {**order, "projectId": here["project_id"], "template": elsewhere["template_name"]}
        ),
        api.post("/api/v1/experiments/continue", {"id": elsewhere["experiment_id"]}),
        api.post(
            f"/api/v1/experiments/{here['experiment_id']}/move", {"destinationProjectId": elsewhere["project_id"]}
        ),
        api.post(f"/api/v1/projects/{here['project_id']}/move", {"destinationWorkspaceId": elsewhere["workspace_id"]}),
        api.post("/api/v1/models", {"name": "x", "workspaceId": elsewhere["workspace_id"]}),
        api.post("/api/v1/templates/x", {"config": {}, "workspaceId": elsewhere["workspace_id"]}),
        api.call("PATCH", "/api/v1/template/rename", {"oldName": elsewhere["template_name"], "newName": "y"}),
        api.get(f"/api/v1/projects/key/{elsewhere['key']}"),
        api.call("PATCH", f"/api/v1/workspaces/{here['workspace_id']}", {"name": "mine"}),
    ]
    # Editors may neither move projects nor change workspaces.
    assert [answer.status for answer in refusals] == [404, 404, 404, 404, 404, 403, 404, 404, 404, 404, 403]
    none = api.post("/api/v1/projects/0/experiments/kill", {"experimentIds": [elsewhere["experiment_id"]]})
    assert "not found in project" in none.json["results"][0]["error"]


def test_workspace_creator_administers_it(rbac_admin: Api) -> None:
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    assert api.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).status == 403
    give(rbac_admin, 3, user)
    made = api.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    assert api.post(f"/api/v1/workspaces/{made}/projects", {"name": "p"}).status == 200
    friend = person(rbac_admin)
    other, guest = friend.id, friend.api
    give(api, 4, other, made)
    assert guest.get(f"/api/v1/workspaces/{made}").status == 200
    members = api.get(f"/api/v1/roles/workspace/{made}").json
    assert {user["id"] for user in members["usersAssignedDirectly"]} == {user, other}
    anywhere = {"userRoleAssignments": [{"userId": other, "roleAssignment": {"role": {"roleId": 5}}}]}
    assert api.post("/api/v1/roles/add-assignments", anywhere).status == 403
    account = {"agentUser": "ada", "agentUid": 4711, "agentGid": 4711, "agentGroup": "ada"}
    linked = api.call("PATCH", f"/api/v1/workspaces/{made}", {"agentUserGroup": account})
    assert (linked.status, "SET_WORKSPACE_AGENT_USER_GROUP" in linked.sentence) == (403, True)
    assert rbac_admin.call("PATCH", f"/api/v1/workspaces/{made}", {"agentUserGroup": account}).status == 200
    assert api.call("DELETE", f"/api/v1/workspaces/{made}").status == 200


def test_roles_of_groups_reach_their_members(rbac_admin: Api) -> None:
    someone = person(rbac_admin)
    user, api = someone.id, someone.api
    there = things(rbac_admin)
    path = f"/api/v1/experiments/{there['experiment_id']}"
    assigned = {"role": {"roleId": 4}, "scopeWorkspaceId": there["workspace_id"]}
    body = {"groupRoleAssignments": [{"groupId": there["group_id"], "roleAssignment": assigned}]}
    assert rbac_admin.post("/api/v1/roles/add-assignments", body).status == 200
    assert rbac_admin.post("/api/v1/roles/add-assignments", body).status == 409
    assert api.get(path).status == 403
    change = {"groupId": there["group_id"], "addUsers": [user]}
    assert rbac_admin.call("PUT", f"/api/v1/groups/{there['group_id']}", change).status == 200
    assert api.get(path).status == 200
    (role,) = api.get(f"/api/v1/roles/search/by-user/{user}").json["roles"]
    assert [one["groupId"] for one in role["groupRoleAssignments"]] == [there["group_id"]]
    summary = api.get("/api/v1/permissions/summary").json
    assert summary["assignments"] == [
        {"roleId": 4, "scopeWorkspaceIds": [there["workspace_id"]], "scopeCluster": False}
    ]
    of_group = api.get(f"/api/v1/roles/search/by-group/{there['group_id']}").json
    assert ([r["name"] for r in of_group["roles"]], of_group["assignments"]) == (["Viewer"], summary["assignments"])
    assert rbac_admin.post("/api/v1/roles/remove-assignments", body).status == 200
    assert rbac_admin.post("/api/v1/roles/remove-assignments", body).status == 404
    assert api.get(path).status == 403


def test_the_queue_tells_no_more_than_the_queue(rbac_admin: Api) -> None:
    api = person(rbac_admin).api
    made = rbac_admin.post("/api/v1/experiments", {"config": config(name="secret")}).json["experiment"]

    def entry(sees: Api) -> Json:
        jobs: list[Json] = sees.get("/api/v1/job-queues-v2").json["jobs"]
        (job,) = [job for job in jobs if next(iter(job.values()))["jobId"] == made["jobId"]]
        return job

    try:
        assert (list(entry(rbac_admin)), list(entry(api))) == (["full"], ["limited"])
        assert "secret" not in api.get("/api/v1/job-queues-v2").content.decode()
        change = {"updates": [{"jobId": made["jobId"], "weight": 2}]}
        assert api.post("/api/v1/job-queues", change).status == 403
    finally:
        rbac_admin.post(f"/api/v1/experiments/{made['id']}/kill")


@pytest.mark.parametrize(
    ("assigned", "status"),
    [
        ({"role": {"roleId": 99}}, 404),
        ({"role": {"roleId": 1}, "scopeWorkspaceId": 1}, 400),
        ({"role": {"roleId": 4}, "scopeWorkspaceId": 99999999}, 404),
    ],
)
def test_roles_that_cannot_be_given(rbac_admin: Api, assigned: Json, status: int) -> None:
    body = {"userRoleAssignments": [{"userId": 2, "roleAssignment": assigned}]}
    assert rbac_admin.post("/api/v1/roles/add-assignments", body).status == status


def test_roles_are_listed(rbac_admin: Api) -> None:
    assert rbac_admin.get("/api/v1/master").json["rbacEnabled"]
    every = rbac_admin.post("/api/v1/roles/search", {"limit": 0, "offset": 0}).json
    assert [role["roleId"] for role in every["roles"]] == list(ROLES)
    local = rbac_admin.post("/api/v1/roles/search/by-assignability", {"limit": 2, "workspaceId": 1}).json
    assert [role["name"] for role in local["roles"]] == ["WorkspaceAdmin", "Viewer"]
    (viewer,) = rbac_admin.post("/api/v1/roles/search/by-ids", {"roleIds": [4]}).json["roles"]
    ids = {permission["id"] for permission in viewer["role"]["permissions"]}
    assert "PERMISSION_TYPE_VIEW_WORKSPACE" in ids
    assert "PERMISSION_TYPE_CREATE_EXPERIMENT" not in ids
