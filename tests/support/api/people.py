"""Creates users for a test, and gives them roles and workspaces."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from tests.support.api.http import Answer, Api
from trainmaster.client.session_calls import hashed

Json = dict[str, Any]
PASSWORD = "Correct-horse-1"


@dataclass(frozen=True)
class Person:
    id: int
    name: str
    api: Api

    @property
    def path(self) -> str:
        return f"/api/v1/users/{self.id}"


def make(chief: Api, **user: Any) -> Answer:
    """Ask for a new user."""
    body = {"user": {"username": f"u{uuid.uuid4().hex[:8]}", **user}, "password": hashed(PASSWORD), "isHashed": True}
    return chief.post("/api/v1/users", body)


def enter(url: str, name: str, password: str = PASSWORD) -> Answer:
    return Api(url).post("/api/v1/auth/login", {"username": name, "password": hashed(password), "isHashed": True})


def person(chief: Api, **user: Any) -> Person:
    """A new user who has logged in."""
    made = make(chief, **user)
    assert made.status == 200, made.content
    found = made.json["user"]
    token = enter(chief.url, found["username"]).json["token"]
    return Person(int(found["id"]), found["username"], Api(chief.url, token))


def assigned(role: int, user: int, workspace: int | None = None) -> Json:
    """The body of a request that gives or takes a role."""
    assignment = {"role": {"roleId": role}, "scopeWorkspaceId": workspace}
    return {"userRoleAssignments": [{"userId": user, "roleAssignment": assignment}]}


def give(chief: Api, role: int, user: int, workspace: int | None = None) -> None:
    answer = chief.post("/api/v1/roles/add-assignments", assigned(role, user, workspace))
    assert answer.status == 200, answer.content


def workspace_of(chief: Api) -> tuple[int, int]:
    """A new workspace, and a project in it."""
    made = chief.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    return made, chief.post(f"/api/v1/workspaces/{made}/projects", {"name": "p"}).json["project"]["id"]
