"""Commands, notebooks, shells, TensorBoards and generic tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trainmaster.client.context import ContextFolder
from trainmaster.client.errors import ClientError
from trainmaster.client.patience import Notice, Patience
from trainmaster.client.resource import Json, Resource, given, word

Kind = Literal["command", "notebook", "shell", "tensorboard"]
POLL_INTERVAL = 0.5  # seconds between two requests while waiting for a task


class Tasks(Resource):
    """Standalone tasks, which belong to no experiment. `ClusterView.task_log` reads their logs.

    Arguments of several calls:
        task_id: Id of the task.
    """

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
        """Start a task. The call is not repeated when the connection fails.

        Args:
            kind: command, notebook, shell or tensorboard.
            config: The task's configuration.
            files: Files to send with it.
            template: Name of a template that the configuration is merged over.
            workspace_id: The workspace to put it in; None for the default.
            more: `preview` for notebooks; `experimentIds` and `trialIds` for TensorBoards.

        Returns:
            The task, and under `config` its whole configuration; under `remarks` what its owner should know, such as
            keys that have no effect where it runs.

        Raises:
            ClientError: A file to send cannot be read, or changed meanwhile.
        """
        body = {"config": dict(config), **given(templateName=template, workspaceId=workspace_id, **more)}
        sent = files.within(body, "files") if files else body
        answer = self._post(f"{kind}s", sent, retry=False)
        return {**answer[kind], "config": answer["config"], "remarks": answer.get("remarks") or []}

    def list(self, kind: Kind, *, users: Sequence[str] = (), workspace_id: int = 0, **order: str) -> list[Json]:
        """List tasks of a kind.

        Args:
            kind: command, notebook, shell or tensorboard.
            users: Only those of these users; empty for all.
            workspace_id: Only those of one workspace; 0 for all.
            order: `sortBy` and `orderBy` as in the API.

        Returns:
            The tasks.
        """
        query = given(users=list(users) or None, workspaceId=workspace_id or None, **order)
        return self._all(f"{kind}s", f"{kind}s", **query)

    def get(self, kind: Kind, task_id: str) -> Json:
        """Get a task.

        Args:
            kind: command, notebook, shell or tensorboard.

        Returns:
            The task, and under `config` its whole configuration.

        Raises:
            NoSuchThing: There is no such task.
        """
        answer = self._get(f"{kind}s/{word(task_id)}")
        return {**answer[kind], "config": answer["config"]}

    def kill(self, kind: Kind, task_id: str) -> None:
        """End a task.

        Args:
            kind: command, notebook, shell or tensorboard.

        Raises:
            NoSuchThing: There is no such task.
            NotAllowed: The caller may not end it.
        """
        self._post(f"{kind}s/{word(task_id)}/kill")

    def set_priority(self, kind: Kind, task_id: str, priority: int) -> None:
        """Set a task's priority, where the master does the scheduling.

        Args:
            kind: command, notebook, shell or tensorboard.
            priority: 1 (first) to 99 (last).

        Raises:
            NoSuchThing: There is no such task.
            NotAllowed: The caller may not change it.
        """
        self._post(f"{kind}s/{word(task_id)}/set_priority", {"priority": priority})

    def find(self, kind: Kind, start: str) -> str:
        """Complete the beginning of an id.

        Args:
            kind: command, notebook, shell or tensorboard.
            start: The first characters of an id, or all of it.

        Returns:
            The id.

        Raises:
            ClientError: No id or more than one begins like this.
        """
        if len(start) == 36:
            return start
        ids = [str(task["id"]) for task in self.list(kind) if task["id"].startswith(start)]
        if len(ids) == 1:
            return ids[0]
        many = f"several {kind}s begin" if ids else f"no {kind} begins"
        raise ClientError(f"{many[0].upper()}{many[1:]} with {start!r}; `det {kind} list --all` shows them.")

    def task(self, task_id: str) -> Json:
        """Get a task of any kind.

        Returns:
            The task with its allocations.

        Raises:
            NoSuchThing: There is no such task.
        """
        return dict(self._get(f"tasks/{word(task_id)}")["task"])

    def wait_ready(self, task_id: str, patience: float = 1800.0, notice: Notice | None = None) -> None:
        """Wait until the service in a task answers. A master that is away meanwhile is waited for as DET_PATIENCE says.

        Args:
            patience: Seconds to wait at most while the master answers.
            notice: As in `Master.logs`.

        Raises:
            ClientError: The task has ended, or is not ready after `patience` seconds.
            NoSuchThing: There is no such task.
        """
        deadline = time.monotonic() + patience
        waiting = Patience(notice=notice)
        while True:
            task = waiting.ask(lambda: self.task(task_id))
            if task.get("endTime"):
                raise ClientError(f"The task has ended; `det task logs {task_id}` may show why.")
            if any(allocation["isReady"] for allocation in task["allocations"]):
                return
            if time.monotonic() > deadline:
                raise ClientError(f"The task is not ready after {patience:.0f} s; it has not ended.")
            time.sleep(POLL_INTERVAL)

    # -- generic tasks --------------------------------------------------------------------------------------------

    def create(self, config: str, files: ContextFolder | None = None, **more: Any) -> str:
        """Start a generic task. The call is not repeated when the connection fails.

        Args:
            config: The configuration as YAML.
            files: Files to send with it.
            more: Named as in the API: projectId, parentId, forkedFrom, inheritContext, noPause.

        Returns:
            The id of the task.

        Raises:
            ClientError: A file to send cannot be read, or changed meanwhile.
        """
        body = {"config": config, **given(**more)}
        sent = files.within(body, "contextDirectory") if files else body
        return str(self._post("generic-tasks", sent, retry=False)["taskId"])

    def config(self, task_id: str) -> str:
        """Get the configuration of a generic task.

        Returns:
            The configuration as JSON text.

        Raises:
            NoSuchThing: There is no such task.
        """
        return str(self._get(f"tasks/{word(task_id)}/config")["config"])

    def pause(self, task_id: str) -> None:
        """Pause a generic task with the tasks that it started.

        Raises:
            NoSuchThing: There is no such task.
            NotAllowed: The caller may not change it.
        """
        self._post(f"tasks/{word(task_id)}/pause")

    def unpause(self, task_id: str) -> None:
        """Let a generic task run again, with the tasks that it started.

        Raises:
            NoSuchThing: There is no such task.
            NotAllowed: The caller may not change it.
        """
        self._post(f"tasks/{word(task_id)}/unpause")

    def end(self, task_id: str, *, root: bool = False) -> None:
        """End a generic task with the tasks that it started.

        Args:
            root: End the whole tree of tasks that it belongs to.

        Raises:
            NoSuchThing: There is no such task.
            NotAllowed: The caller may not end it.
        """
        self._post(f"tasks/{word(task_id)}/kill", {"taskId": task_id, "killFromRoot": root})
