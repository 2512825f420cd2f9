"""Starts and watches standalone tasks through the API."""

from __future__ import annotations

from typing import Any

from tests.support.api.http import Api
from tests.support.master import wait_for

Json = dict[str, Any]


def command(api: Api, *entrypoint: str, files: list[Json] | None = None, **config: Any) -> str:
    body = {"config": {"entrypoint": list(entrypoint), **config}, "files": files or []}
    answer = api.post("/api/v1/commands", body)
    assert answer.status == 200, answer.content
    return str(answer.json["command"]["id"])


def generic(api: Api, text: str, **body: Any) -> str:
    answer = api.post("/api/v1/generic-tasks", {"config": text, **body})
    assert answer.status == 200, answer.content
    return str(answer.json["taskId"])


def ended(api: Api, task_id: str) -> Json:
    """The task, once it has ended."""
    found: Json = wait_for(
        lambda: task if (task := api.get(f"/api/v1/tasks/{task_id}").json["task"]).get("endTime") else None,
        f"the end of {task_id}",
    )
    return found


def state(api: Api, task_id: str) -> str:
    return str(api.get(f"/api/v1/tasks/{task_id}").json["task"]["taskState"]).removeprefix("GENERIC_TASK_STATE_")


def lines(api: Api, task_id: str) -> list[str]:
    return [line["log"].rstrip() for line in api.lines(f"/api/v1/tasks/{task_id}/logs")]


def launch(api: Api, kind: str, **body: Any) -> Json:
    """A notebook, shell or TensorBoard as the master shows it."""
    answer = api.post(f"/api/v1/{kind}s", body)
    assert answer.status == 200, answer.content
    found: Json = answer.json[kind]
    return found


def until_ready(api: Api, task_id: str) -> None:
    """Until its service answers; fails with its log when it ends before."""

    def look() -> bool:
        task = api.get(f"/api/v1/tasks/{task_id}").json["task"]
        assert not task.get("endTime"), lines(api, task_id)
        return any(one["isReady"] for one in task["allocations"])

    wait_for(look, f"the service in {task_id}")
