"""Configuration policies, put by an administrator, lived by experiments; and the banner."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import config

GLOBAL = "/api/v1/config-policies/global"
POLICY = {"invariant_config": {"description": "said by the workspace"}, "constraints": {"priority_limit": 40}}


@pytest.fixture
def home(admin: Api) -> dict[str, Any]:
    """A workspace and a project in it."""
    name = uuid.uuid4().hex
    workspace = admin.post("/api/v1/workspaces", {"name": name}).json["workspace"]["id"]
    made = admin.post(f"/api/v1/workspaces/{workspace}/projects", {"name": "p"}).json["project"]
    return {"name": name, "project": made["id"], "policies": f"/api/v1/config-policies/workspaces/{workspace}"}


@pytest.fixture
def site(admin: Api) -> Iterator[str]:
    """Policies of the whole site concern all other tests: they are gone after the test."""
    yield GLOBAL
    admin.call("DELETE", f"{GLOBAL}/EXPERIMENT")
    admin.call("DELETE", f"{GLOBAL}/NTSC")


def put(admin: Api, address: str, text: str) -> Any:
    return admin.call("PUT", f"{address}/EXPERIMENT", {"configPolicies": text, "workloadType": "EXPERIMENT"})


def made(user: Api, home: dict[str, Any], **keys: Any) -> Any:
    return user.post(
        "/api/v1/experiments", {"config": config(**keys), "projectId": home["project"], "validateOnly": True}
    )


def test_experiment_obeys_policies_of_its_workspace(user: Api, admin: Api, home: dict[str, Any]) -> None:
    text = "invariant_config: {description: said by the workspace}\nconstraints: {priority_limit: 40}"
    answer = put(admin, home["policies"], text)
    assert answer.json == {"configPolicies": POLICY}
    assert user.get(f"{home['policies']}/EXPERIMENT").json == {"configPolicies": POLICY}
    config = made(user, home, description="mine", resources={"priority": 40}).json["config"]
    assert config["description"] == "said by the workspace"
    refused = made(user, home, resources={"priority": 39})
    assert refused.status == 400
    assert f"the workspace '{home['name']}'" in refused.sentence
    assert user.post("/api/v1/experiments", {"config": refused_elsewhere(), "validateOnly": True}).status == 200
    assert admin.call("DELETE", f"{home['policies']}/EXPERIMENT").json == {}
    assert user.get(f"{home['policies']}/EXPERIMENT").json == {"configPolicies": {}}
    assert made(user, home, description="mine").json["config"]["description"] == "mine"


def refused_elsewhere() -> str:
    return config(resources={"priority": 1})


def test_the_site_goes_first(user: Api, admin: Api, home: dict[str, Any], site: str) -> None:
    put(admin, home["policies"], "invariant_config: {description: workspace, max_restarts: 2}")
    assert put(admin, site, "invariant_config: {description: site}").status == 200
    config = made(user, home).json["config"]
    assert (config["description"], config["max_restarts"]) == ("site", 2)


def test_a_later_change_is_held_to_the_limits_too(user: Api, admin: Api, home: dict[str, Any]) -> None:
    body = {"config": config(), "projectId": home["project"], "activate": False}
    number = user.post("/api/v1/experiments", body).json["experiment"]["id"]
    put(admin, home["policies"], "constraints: {resources: {max_slots: 3}, priority_limit: 40}")
    address = f"/api/v1/experiments/{number}"
    for resources in ({"priority": 39}, {"maxSlots": 4}):
        answer = user.call("PATCH", address, {"id": number, "resources": resources})
        assert (answer.status, home["name"] in answer.sentence) == (400, True)
    assert user.call("PATCH", address, {"id": number, "resources": {"maxSlots": 3, "priority": 40}}).status == 200
    job = user.get(address).json["experiment"]["jobId"]
    answer = user.post("/api/v1/job-queues", {"updates": [{"jobId": job, "priority": 39}]})
    assert (answer.status, home["name"] in answer.sentence) == (400, True)
    user.post(f"{address}/kill")


def test_unauthorized_and_invalid_policies_are_rejected(user: Api, admin: Api, home: dict[str, Any], site: str) -> None:
    assert put(user, home["policies"], "constraints: {priority_limit: 40}").status == 403
    assert put(admin, site, "invariant_config: {colour: red}").status == 400
    assert put(admin, site, "- a").status == 400
    assert admin.call("PUT", f"{site}/WEATHER", {"configPolicies": "{}", "workloadType": "x"}).status == 400
    assert admin.get("/api/v1/config-policies/workspaces/99999999/EXPERIMENT").status == 404
    tasks = {"configPolicies": "invariant_config: {idle_timeout: 30m}", "workloadType": "NTSC"}
    assert admin.call("PUT", f"{site}/NTSC", tasks).json["configPolicies"]["invariant_config"] == {
        "idle_timeout": "30m"
    }


# -- the banner ---------------------------------------------------------------------------------------------------

BANNER = "/api/v1/master/cluster_message"


def test_the_banner(user: Api, admin: Api, anonymous: Api) -> None:
    assert user.get(BANNER).status == 403
    assert admin.get(BANNER).json == {"clusterMessage": None}
    body = {"message": "Back at noon", "startTime": "2020-01-01T00:00:00Z", "duration": "5200w2h"}
    assert user.call("PUT", BANNER, body).status == 403
    assert admin.call("PUT", BANNER, body).status == 200
    shown = anonymous.get("/api/v1/master").json["clusterMessage"]
    assert shown["message"] == "Back at noon"
    assert shown["endTime"].endswith("T02:00:00Z")
    later = {"message": "Soon", "startTime": "2100-01-01T00:00:00Z"}
    assert admin.call("PUT", BANNER, later).status == 200
    assert anonymous.get("/api/v1/master").json["clusterMessage"] is None
    found = admin.get(BANNER).json["clusterMessage"]
    assert (found["message"], found["startTime"]) == ("Soon", "2100-01-01T00:00:00Z")
    for given in ("2100-01-01T00:00:00.5Z", "2100-01-01T00:00:00.123456Z"):
        assert admin.call("PUT", BANNER, {**later, "startTime": given}).status == 200
        kept = admin.get(BANNER).json["clusterMessage"]["startTime"]
        assert kept == given.replace(".5Z", ".500Z")
    assert admin.call("DELETE", BANNER).status == 200
    assert admin.get(BANNER).json == {"clusterMessage": None}
    for wrong in (
        {"message": ""}, {"message": "x" * 251}, {"duration": "soon"}, {"endTime": "2020-01-01T00:00:00Z"},
        {"startTime": "2020-01-01T00:00:00"}, {"duration": "1h", "endTime": "2100-01-01T00:00:00Z"},
        {"duration": "999999w"},
    ):  # fmt: skip
        assert admin.call("PUT", BANNER, {**later, **wrong}).status == 400, wrong
