"""The words of Determined 0.38.1 that its client, its SDK and scripts around them look for in refusals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.api.jobs import config
from tests.support.api.people import PASSWORD, person
from tests.support.master import MasterProcess

NOBODY = "99999999"
NO_TASK = "28ad1623-dcf0-47d2-9faa-265aaa05b078"
V1 = "/api/v1"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{V1}/experiments/{NOBODY}"),
        ("POST", f"{V1}/experiments/{NOBODY}/kill"),
        ("DELETE", f"{V1}/experiments/{NOBODY}"),
        ("GET", f"{V1}/trials/{NOBODY}"),
        ("GET", f"{V1}/trials/{NOBODY}/logs"),
        ("GET", f"{V1}/checkpoints/{NO_TASK}"),
        ("GET", f"{V1}/tasks/{NO_TASK}"),
        ("GET", f"{V1}/tasks/{NO_TASK}/logs"),
        *(("GET", f"{V1}/{kind}/{NO_TASK}") for kind in ("commands", "notebooks", "shells", "tensorboards")),
        *(("POST", f"{V1}/{kind}/{NO_TASK}/kill") for kind in ("commands", "notebooks", "shells", "tensorboards")),
        ("GET", f"{V1}/workspaces/{NOBODY}"),
        ("GET", f"{V1}/projects/{NOBODY}"),
        ("GET", f"{V1}/models/none"),
        ("GET", f"{V1}/templates/none"),
        ("GET", f"{V1}/users/{NOBODY}"),
        ("GET", f"{V1}/users/none/by-username"),
        ("GET", f"{V1}/groups/{NOBODY}"),
        ("DELETE", f"{V1}/webhooks/{NOBODY}"),
        ("GET", f"{V1}/agents/none"),
        ("GET", "/nothing/here"),
    ],
)
def test_unknown_objects_answer_not_found(admin: Api, method: str, path: str) -> None:
    answer = admin.call(method, path, None if method == "GET" else {})
    assert answer.status == 404, answer.content
    assert answer.error["code"] == 5
    assert "not found" in answer.sentence


def named(name: str, workspace: int) -> list[tuple[str, dict[str, Any]]]:
    """What can be made under a name."""
    return [
        (f"{V1}/workspaces", {"name": name}),
        (f"{V1}/workspaces/{workspace}/projects", {"name": name}),
        (f"{V1}/models", {"name": name}),
        (f"{V1}/templates/{name}", {"config": {}}),
        (f"{V1}/users", {"user": {"username": name, "active": True}, "password": PASSWORD}),
        (f"{V1}/groups", {"name": name}),
    ]


def test_a_name_that_is_taken_already_exists(admin: Api) -> None:
    workspace = admin.post(f"{V1}/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    for path, body in named(f"w{uuid.uuid4().hex[:8]}", workspace):
        assert admin.post(path, body).status == 200, path
        again = admin.post(path, body)
        assert (again.status, again.error["code"]) == (409, 6), path
        assert "already exists" in again.sentence


def logging_in(master: MasterProcess, admin: Api, active: bool, password: str) -> Any:
    someone = person(admin)
    assert admin.call("PATCH", someone.path, {"active": active}).status == 200
    return Api(master.url).post(f"{V1}/auth/login", {"username": someone.name, "password": password})


@pytest.mark.parametrize(
    ("active", "password", "status", "phrase"),
    [
        (True, "Guess-1234", 401, "invalid credentials"),
        (False, "Guess-1234", 401, "invalid credentials"),
        (False, PASSWORD, 403, "user is not active"),
    ],
)
def test_refused_login_says_why(
    master: MasterProcess, admin: Api, active: bool, password: str, status: int, phrase: str
) -> None:
    answer = logging_in(master, admin, active, password)
    assert (answer.status, phrase in answer.sentence) == (status, True), answer.content


def unfulfillable(user: Api) -> Any:
    return user.post(f"{V1}/commands", {"config": {"entrypoint": ["true"], "resources": {"slots": 10485}}})


def exceeding(user: Api) -> Any:
    return user.post(f"{V1}/experiments", {"config": config(resources={"slots_per_trial": 10485})})


def bound(admin: Api) -> Any:
    return admin.post(f"{V1}/resource-pools/default/workspace-bindings", {"workspaceIds": [1]})


@pytest.mark.parametrize(
    ("asked", "phrase"),
    [
        (unfulfillable, "request unfulfillable"),
        (exceeding, "slots requested exceeds cluster capacity"),
        (bound, "default resource pool default cannot be bound to any workspace"),
    ],
)
def test_refusals_contain_determineds_phrases(admin: Api, asked: Callable[[Api], Any], phrase: str) -> None:
    answer = asked(admin)
    assert answer.status == 400, answer.content
    assert phrase in answer.sentence


def test_removing_non_member_from_group_is_not_found(admin: Api) -> None:
    group = admin.post(f"{V1}/groups", {"name": f"g{uuid.uuid4().hex[:8]}"}).json["group"]["groupId"]
    someone = person(admin)
    answer = admin.call("PUT", f"{V1}/groups/{group}", {"removeUsers": [someone.id]})
    assert (answer.status, "not found" in answer.sentence) == (404, True), answer.content


def test_whom_no_role_allows_it_is_denied_access(rbac_master: MasterProcess, rbac_admin: Api) -> None:
    someone = person(rbac_admin)
    answer = someone.api.post(f"{V1}/workspaces", {"name": "mine"})
    assert (answer.status, "access denied" in answer.sentence) == (403, True), answer.content
    assert Api(rbac_master.url, log_in(rbac_master, "admin")).get(f"{V1}/me").status == 200
