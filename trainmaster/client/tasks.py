"""Commands, notebooks, shells, TensorBoards and generic tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trainmaster.client.context import ContextFolder
from trainmaster.client.errors import ClientError
from trainmaster.client.resource import Json, Resource, given, word

Kind = Literal["command", "notebook", "shell", "tensorboard"]
LOOK = 0.5  # seconds between two looks at a task that is waited for


class Tasks(Resource):
    """Tasks that belong to no experiment. Their logs are in `ClusterView.task_log`."""

    def launch(
        self,
        kind: Kind,
        config: Mapping[str, Any],
        files: ContextFolder | None = None,
        *,
        template: str | None = None,
        workspace_id: int | None = None,
        **more: Any,
    ) -> Json:
        """The task, and under `config` its whole configuration. `more`: `preview` for notebooks, `experimentIds` and
        `trialIds` for TensorBoards."""
        body = {"config": dict(config), **given(templateName=template, workspaceId=workspace_id, **more)}
        sent = files.within(body, "files") if files else body
        answer = self._post(f"{kind}s", sent, retry=False)
        return {**answer[kind], "config": answer["config"]}

    def list(self, kind: Kind, *, users: Sequence[str] = (), workspace_id: int = 0, **order: str) -> list[Json]:
        """`order`: sortBy and orderBy as the API names them."""
        query = given(users=list(users) or None, workspaceId=workspace_id or None, **order)
        return self._all(f"{kind}s", f"{kind}s", **query)

    def get(self, kind: Kind, task_id: str) -> Json:
        """The task, and under `config` its whole configuration."""
        answer = self._get(f"{kind}s/{word(task_id)}")
        return {**answer[kind], "config": answer["config"]}

    def kill(self, kind: Kind, task_id: str) -> None:
        self._post(f"{kind}s/{word(task_id)}/kill")

    def set_priority(self, kind: Kind, task_id: str, priority: int) -> None:
        """1 is served first, 99 last; where the master schedules itself."""
        self._post(f"{kind}s/{word(task_id)}/set_priority", {"priority": priority})

    def find(self, kind: Kind, start: str) -> str:
        """The id that begins with `start`. Raises ClientError for none, and for several."""
        if len(start) == 36:
            return start
        found = [str(task["id"]) for task in self.list(kind) if task["id"].startswith(start)]
        if len(found) == 1:
            return found[0]
        many = f"several {kind}s begin" if found else f"no {kind} begins"
        raise ClientError(f"{many[0].upper()}{many[1:]} with {start!r}; `det {kind} list --all` shows them.")

    def task(self, task_id: str) -> Json:
        """Any task, with its allocations."""
        return dict(self._get(f"tasks/{word(task_id)}")["task"])

    def wait_ready(self, task_id: str, patience: float = 1800.0) -> None:
        """Until the service in a task answers. Raises ClientError when the task ends before, or after `retries`
        seconds."""
        deadline = time.monotonic() + patience
        while True:
            task = self.task(task_id)
            if task.get("endTime"):
                raise ClientError(f"The task has ended; `det task logs {task_id}` may say why.")
            if any(allocation["isReady"] for allocation in task["allocations"]):
                return
            if time.monotonic() > deadline:
                raise ClientError(f"The task was not ready within {patience:.0f} s; it goes on waiting.")
            time.sleep(LOOK)

    # -- generic tasks --------------------------------------------------------------------------------------------

    def create(self, config: str, files: ContextFolder | None = None, **more: Any) -> str:
        """A generic task of a YAML text; its id. `more` as the API names it: projectId, parentId, forkedFrom,
        inheritContext, noPause."""
        body = {"config": config, **given(**more)}
        sent = files.within(body, "contextDirectory") if files else body
        return str(self._post("generic-tasks", sent, retry=False)["taskId"])

    def config(self, task_id: str) -> str:
        """As JSON."""
        return str(self._get(f"tasks/{word(task_id)}/config")["config"])

    def steer(self, task_id: str, verb: Literal["pause", "unpause"]) -> None:
        """With what it has started."""
        self._post(f"tasks/{word(task_id)}/{verb}")

    def end(self, task_id: str, *, root: bool = False) -> None:
        """A task and what it has started; with `root` all of its family."""
        self._post(f"tasks/{word(task_id)}/kill", {"taskId": task_id, "killFromRoot": root})
