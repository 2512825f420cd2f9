"""Templates: kept by name, and filled in where an experiment's file leaves something open."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import config

TEMPLATES = "/api/v1/templates"


@pytest.fixture
def name(user: Api) -> str:
    name = f"gpu-{uuid.uuid4().hex[:8]}"
    body = {"name": name, "config": {"max_restarts": 7, "description": "from the template"}, "workspaceId": 0}
    answer = user.post(f"{TEMPLATES}/{name}", body)
    assert answer.status == 200, answer.content
    return name


def test_a_template_from_its_making_to_its_end(user: Api, name: str) -> None:
    found = user.get(f"{TEMPLATES}/{name}").json["template"]
    assert found == {
        "name": name,
        "workspaceId": 1,
        "config": {"max_restarts": 7, "description": "from the template"},
    }
    assert user.post(f"{TEMPLATES}/{name}", {"config": {}}).status == 409
    assert user.call("PATCH", f"{TEMPLATES}/{name}", {"max_restarts": 1}).json["template"]["config"] == {
        "max_restarts": 1
    }
    put = user.call("PUT", f"{TEMPLATES}/{name}", {"name": name, "config": {"max_restarts": 2}, "workspaceId": 1})
    assert put.json["template"]["config"] == {"max_restarts": 2}
    renamed = user.call("PATCH", "/api/v1/template/rename", {"oldName": name, "newName": f"{name}2"})
    assert renamed.json["template"]["name"] == f"{name}2"
    assert user.get(f"{TEMPLATES}/{name}").status == 404
    put = user.call("PUT", f"{TEMPLATES}/{name}", {"name": name, "config": {}, "workspaceId": 1})
    assert put.status == 200
    taken = user.call("PATCH", "/api/v1/template/rename", {"oldName": name, "newName": f"{name}2"})
    assert taken.status == 409
    for gone in (name, f"{name}2"):
        assert user.call("DELETE", f"{TEMPLATES}/{gone}").status == 200
        assert user.call("DELETE", f"{TEMPLATES}/{gone}").status == 404


def test_lists(user: Api, name: str) -> None:
    home = user.post("/api/v1/workspaces", {"name": name}).json["workspace"]["id"]
    user.post(f"{TEMPLATES}/{name}-b", {"config": {}, "workspaceId": home})

    def found(**query: Any) -> list[str]:
        return [entry["name"] for entry in user.get(TEMPLATES, **{"name": name, **query}).json["templates"]]

    assert found() == [name, f"{name}-b"]
    assert found(orderBy="ORDER_BY_DESC") == [f"{name}-b", name]
    assert found(workspaceIds=home) == [f"{name}-b"]
    assert found(limit=1, offset=1) == [f"{name}-b"]
    assert user.get(TEMPLATES, sortBy="SORT_BY_COLOUR").status == 400


@pytest.mark.parametrize("strange", [{"max_restarts": "x"}, {"colour": 1}, {"searcher": {"name": "bayes"}}])
def test_invalid_template_is_rejected_where_it_is_used(user: Api, name: str, strange: dict[str, Any]) -> None:
    """A template holds any mapping; nobody knows yet what it will be used for."""
    assert user.call("PATCH", f"{TEMPLATES}/{name}", strange).json["template"]["config"] == strange
    used = user.post("/api/v1/experiments", {"config": config(), "template": name, "validateOnly": True})
    assert used.status == 400
    assert used.sentence.startswith(f"template {name}: {next(iter(strange))}")


def test_one_template_serves_experiments_and_tasks(user: Api, name: str) -> None:
    shared = {
        "max_restarts": 3,
        "searcher": {"metric": "loss"},
        "idle_timeout": "1h",
        "work_dir": "/tmp",
        "resources": {"slots": 0, "slots_per_trial": 1, "weight": 2.0},
    }
    assert user.call("PATCH", f"{TEMPLATES}/{name}", shared).status == 200
    own = json.dumps({"entrypoint": "x", "searcher": {"name": "single"}})
    made = user.post("/api/v1/experiments", {"config": own, "template": name, "validateOnly": True})
    assert made.status == 200, made.content
    found = made.json["config"]
    assert (found["max_restarts"], found["searcher"]["metric"], found["resources"]["weight"]) == (3, "loss", 2.0)
    asked = {"config": {}, "templateName": name, "preview": True}
    planned = user.post("/api/v1/notebooks", asked)
    assert planned.status == 200, planned.content
    task = planned.json["config"]
    # Slots come from the request; this one leaves them to the default.
    assert (task["idle_timeout"], task["work_dir"], task["resources"]["slots"]) == ("1h", "/tmp", 1)
    assert task["resources"]["weight"] == 2.0


def test_template_fills_gaps_in_experiment_configuration(user: Api, name: str) -> None:
    searcher = {"name": "single", "metric": "loss"}

    open_ = json.dumps({"name": "t", "entrypoint": "x", "searcher": searcher})
    made = user.post("/api/v1/experiments", {"config": open_, "template": name, "validateOnly": True})
    assert made.status == 200, made.content
    assert (made.json["config"]["max_restarts"], made.json["config"]["description"]) == (7, "from the template")
    own = user.post("/api/v1/experiments", {"config": config(), "template": name, "validateOnly": True})
    assert own.json["config"]["max_restarts"] == 0, "what the file says goes first"
    assert user.post("/api/v1/experiments", {"config": open_, "template": "none", "validateOnly": True}).status == 404
