"""Long polls of the nodes of a job: barriers with the other nodes, and preemption requests."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import Field

from trainmaster.master.http.dependencies import (
    AnyCaller,
    ServedMaster,
    UsesMaster,
    own_allocation,
    own_trial,
)
from trainmaster.master.http.messages import Body
from trainmaster.master.http.waiting import wait_for
from trainmaster.master.services.errors import Conflict
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["jobs"])

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
async def all_gather(allocation_id: str, body: GatherRequest, master: UsesMaster, caller: AnyCaller) -> JSONResponse:
    return await _barrier(master, caller, allocation_id, "all_gather", body)


@router.post("/api/v1/allocations/{allocation_id}/notify_container_running")
async def container_running(
    allocation_id: str, body: GatherRequest, master: UsesMaster, caller: AnyCaller
) -> JSONResponse:
    return await _barrier(master, caller, allocation_id, "container_running", body)


async def _barrier(
    master: ServedMaster, caller: AnyCaller, allocation_id: str, kind: str, body: GatherRequest
) -> JSONResponse:
    own_allocation(caller, allocation_id)

    def look() -> list[Json] | None:
        gathered = master.barriers.gather(allocation_id, kind, body.request_uuid, max(body.num_peers, 1), body.data)
        if gathered is None and master.trials.get_allocation(allocation_id).ended_at is not None:
            raise Conflict(f"The attempt {allocation_id} is over; no other node will arrive.")
        return gathered

    peers = await wait_for(
        master.wakeups,
        f"allocation:{allocation_id}",
        partial(master.threads.run, caller, look),
        min(master.settings.longest_poll, BARRIER),
    )
    if peers is None:
        away = await master.threads.run(
            caller, master.barriers.missing, allocation_id, kind, body.request_uuid, body.num_peers
        )
        named = f"; missing: node {', '.join(map(str, away[:8]))}{' and more' if away[8:] else ''}" if away else ""
        message = f"Not all {body.num_peers} peers have arrived yet: try again with the same requestUuid{named}."
        return JSONResponse({"error": {"code": 1, "reason": "Canceled", "error": message}}, 408)
    return JSONResponse({"data": peers})


@router.get("/api/v1/allocations/{allocation_id}/signals/preemption")
async def preemption_signal(
    allocation_id: str,
    master: UsesMaster,
    caller: AnyCaller,
    timeout_seconds: Annotated[float, Query(alias="timeoutSeconds", allow_inf_nan=False)] = 0,
) -> Json:
    """Wait for a preemption request, at most the time-out."""
    own_allocation(caller, allocation_id)
    look = partial(master.job_calls.preemptions.ask, allocation_id)
    timeout = min(max(timeout_seconds, 0.0), master.settings.longest_poll)
    reason = await wait_for(master.wakeups, f"allocation:{allocation_id}", look, timeout)
    return {"preempt": reason is not None, "reason": reason or ""}


@router.post("/api/v1/allocations/{allocation_id}/signals/ack_preemption")
def acknowledge(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> Json:
    own_allocation(caller, allocation_id)
    master.preemptions.acknowledge(allocation_id)
    return {}


@router.post("/api/v1/allocations/{allocation_id}/signals/pending_preemption")
def pending(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> Json:
    own_allocation(caller, allocation_id)
    master.preemptions.note_pending(allocation_id, "scheduler")
    return {}


class RunnerMetadata(Body):
    state: str


@router.post("/api/v1/trials/{trial_id}/runner/metadata")
def runner_metadata(trial_id: int, body: RunnerMetadata, master: UsesMaster, caller: AnyCaller) -> Json:
    own_trial(caller, trial_id)
    master.job_records.set_trial_status(trial_id, body.state)
    return {}
