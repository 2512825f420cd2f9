"""Endpoints to start, pause, resume and end generic tasks, together with the tasks that they started."""

from __future__ import annotations

import json

from fastapi import APIRouter

from trainmaster.config.secrets import masked
from trainmaster.master.api.commands import contents
from trainmaster.master.api.experiments import File
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body
from trainmaster.master.services.orchestration.task_orchestrator import GENERIC
from trainmaster.master.services.tasks.task_creation import TaskOrder
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["tasks"])


class CreateTask(Body):
    config: str = ""
    context_directory: list[File] = []  # noqa: RUF012
    project_id: int = 0
    forked_from: str = ""
    parent_id: str = ""
    inherit_context: bool = False
    no_pause: bool = False


class KillTask(Body):
    task_id: str = ""
    kill_from_root: bool = False


@router.post("/generic-tasks")
def create(body: CreateTask, master: UsesMaster, caller: UserCaller) -> Json:
    order = TaskOrder(
        GENERIC,
        body.config,
        contents(body.context_directory),
        project_id=body.project_id,
        parent_id=body.parent_id,
        forked_from=body.forked_from,
        inherits=body.inherit_context,
        pausable=not body.no_pause,
    )
    made = master.task_creation.create(caller, order)
    config = master.standalone_tasks.get(made.task_id).row.config
    warnings = master.feasibility.launch_warnings(config)
    return {"taskId": made.task_id, "warnings": warnings, "remarks": list(made.remarks)}


@router.get("/tasks/{task_id}/config")
def config(task_id: str, master: UsesMaster, caller: UserCaller) -> Json:
    """Return the submitted configuration, as JSON in a string; for a task of another kind the complete
    configuration."""
    row = master.standalone_tasks.get(task_id).row
    return {"config": json.dumps(masked(row.config.to_json() if row.given is None else row.given))}


@router.post("/tasks/{task_id}/kill")
def kill(task_id: str, body: KillTask, master: UsesMaster, caller: UserCaller) -> Json:
    master.standalone_tasks.kill(caller, task_id, root=body.kill_from_root)
    return {}


@router.post("/tasks/{task_id}/pause")
def pause(task_id: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.standalone_tasks.pause(caller, task_id)
    return {}


@router.post("/tasks/{task_id}/unpause")
def unpause(task_id: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.standalone_tasks.unpause(caller, task_id)
    return {}
