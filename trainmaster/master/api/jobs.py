"""Long polls of the nodes of a job: barriers with the other nodes, and preemption requests."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import Field

from trainmaster.master.api.dependencies import (
    AnyCaller,
    Services,
    UsesServices,
    own_allocation,
    own_trial,
)
from trainmaster.master.api.shapes import Body
from trainmaster.master.api.waiting import wait_for
from trainmaster.master.services.allocations import barriers, job_reports
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.experiments import trials

router = APIRouter(tags=["jobs"])
Json = dict[str, Any]

MAX_NODES = 100_000
BARRIER = 60.0  # seconds after which a node that waits for others asks again


class GatherRequest(Body):
    allocation_id: str = ""
    request_uuid: str
    num_peers: int = Field(1, le=MAX_NODES)
    data: Json = {}  # noqa: RUF012
    node_name: str = ""
    rank: int = 0


@router.post("/api/v1/allocations/{allocation_id}/all_gather")
async def all_gather(
    allocation_id: str, body: GatherRequest, services: UsesServices, caller: AnyCaller
) -> JSONResponse:
    return await _barrier(services, caller, allocation_id, "all_gather", body)


@router.post("/api/v1/allocations/{allocation_id}/notify_container_running")
async def container_running(
    allocation_id: str, body: GatherRequest, services: UsesServices, caller: AnyCaller
) -> JSONResponse:
    return await _barrier(services, caller, allocation_id, "container_running", body)


async def _barrier(
    services: Services, caller: AnyCaller, allocation_id: str, kind: str, body: GatherRequest
) -> JSONResponse:
    own_allocation(caller, allocation_id)

    def look() -> list[Json] | None:
        found = barriers.gather(
            services.store, allocation_id, kind, body.request_uuid, max(body.num_peers, 1), body.data
        )
        if found is None and trials.get_allocation(services.store, allocation_id).ended_at is not None:
            raise Conflict(f"The attempt {allocation_id} is over; no other node will arrive.")
        return found

    found = await wait_for(
        services.wakeups,
        f"allocation:{allocation_id}",
        partial(services.threads.run, caller, look),
        min(services.settings.longest_poll, BARRIER),
    )
    if found is None:
        away = await services.threads.run(
            caller, barriers.missing, services.store, allocation_id, kind, body.request_uuid, body.num_peers
        )
        named = f"; missing: node {', '.join(map(str, away[:8]))}{' and more' if away[8:] else ''}" if away else ""
        message = f"Not all {body.num_peers} peers have arrived yet: try again with the same requestUuid{named}."
        return JSONResponse({"error": {"code": 1, "reason": "Canceled", "error": message}}, 408)
    return JSONResponse({"data": found})


@router.get("/api/v1/allocations/{allocation_id}/signals/preemption")
async def preemption_signal(
    allocation_id: str,
    services: UsesServices,
    caller: AnyCaller,
    timeout_seconds: Annotated[float, Query(alias="timeoutSeconds", allow_inf_nan=False)] = 0,
) -> Json:
    """Waits for a preemption request, at most the time-out."""
    own_allocation(caller, allocation_id)
    look = partial(services.job_calls.preemptions.ask, allocation_id)
    timeout = min(max(timeout_seconds, 0.0), services.settings.longest_poll)
    reason = await wait_for(services.wakeups, f"allocation:{allocation_id}", look, timeout)
    return {"preempt": reason is not None, "reason": reason or ""}


@router.post("/api/v1/allocations/{allocation_id}/signals/ack_preemption")
def acknowledge(allocation_id: str, services: UsesServices, caller: AnyCaller) -> Json:
    own_allocation(caller, allocation_id)
    job_reports.acknowledge_preemption(services.store, allocation_id)
    return {}


@router.post("/api/v1/allocations/{allocation_id}/signals/pending_preemption")
def pending(allocation_id: str, services: UsesServices, caller: AnyCaller) -> Json:
    own_allocation(caller, allocation_id)
    job_reports.pending_preemption(services.store, allocation_id, "scheduler")
    return {}


class RunnerMetadata(Body):
    state: str


@router.post("/api/v1/trials/{trial_id}/runner/metadata")
def runner_metadata(trial_id: int, body: RunnerMetadata, services: UsesServices, caller: AnyCaller) -> Json:
    own_trial(caller, trial_id)
    job_reports.set_trial_status(services.store, trial_id, body.state)
    return {}
