"""Endpoint that changes the job queue."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body
from trainmaster.master.services.scheduling.queue_control import QueueChange

router = APIRouter(tags=["queue"])


class QueueControl(Body):
    job_id: str
    priority: int | None = None
    weight: float | None = None
    resource_pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None


class UpdateJobQueue(Body):
    updates: list[QueueControl] = []  # noqa: RUF012


@router.post("/api/v1/job-queues")
def update_job_queue(body: UpdateJobQueue, master: UsesMaster, caller: UserCaller) -> dict[str, Any]:
    """Change priority, weight, pool and position of jobs, one after the other."""
    wanted = [QueueChange(**update.model_dump()) for update in body.updates]
    master.queue_control.change(caller, wanted)
    return {}
