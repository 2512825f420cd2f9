"""Endpoints that only Determined's harness in a container calls; our own runtime does not need them."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from trainmaster.master.api.jobs import BARRIER
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster, own_allocation, peer_of
from trainmaster.master.http.error_envelope import envelope
from trainmaster.master.http.messages import Body
from trainmaster.master.http.waiting import wait_for
from trainmaster.master.services.allocations import harness
from trainmaster.master.services.tasks import proxies
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["jobs"])


class Accelerators(Body):
    container_id: str | None = None
    allocation_id: str | None = None
    node_name: str | None = None
    task_id: str | None = None
    accelerator_type: str | None = None
    accelerator_uuids: list[str] = []  # noqa: RUF012
    resource_pool: str | None = None


class PostAccelerators(Body):
    accelerator_data: Accelerators
    allocation_id: str = ""


class ProxyAddress(Body):
    proxy_address: str = ""
    allocation_id: str = ""
    port: int = 0  # ours: of the service that this job is for
    user: str = ""  # ours: the account that a shell logs in to


@router.post("/allocations/{allocation_id}/acceleratorData")
def accelerators(allocation_id: str, body: PostAccelerators, master: UsesMaster, caller: AnyCaller) -> Json:
    own_allocation(caller, allocation_id)
    data = body.accelerator_data.model_dump(by_alias=True, exclude_none=True)
    master.harness_reports.note_accelerators(allocation_id, data)
    return {}


@router.get("/tasks/{task_id}/acceleratorData")
def task_accelerators(task_id: str, master: UsesMaster, caller: UserCaller) -> Json:
    return {"acceleratorData": master.harness_reports.accelerators(task_id)}


@router.post("/allocations/{allocation_id}/proxy_address")
def proxy_address(
    allocation_id: str, body: ProxyAddress, request: Request, master: UsesMaster, caller: AnyCaller
) -> Json:
    """Take in the address of the services in a job."""
    own_allocation(caller, allocation_id)
    announced = proxies.AnnouncedService(body.proxy_address or peer_of(request), body.port, body.user)
    master.job_services.announce(allocation_id, announced)
    return {}


@router.post("/allocations/{allocation_id}/ready")
def ready(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> Json:
    """Note that a service in the job answers. A trial is ready when its nodes have their lease."""
    own_allocation(caller, allocation_id)
    master.job_services.ready(allocation_id)
    return {}


@router.post("/allocations/{allocation_id}/waiting")
def waiting(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> Json:
    """Accept without effect: nodes that wait for others hold their job like all others."""
    own_allocation(caller, allocation_id)
    return {}


@router.post("/allocations/{allocation_id}/resources/{resources_id}/daemon")
def daemon(allocation_id: str, resources_id: str, master: UsesMaster, caller: AnyCaller) -> Json:
    """Accept without effect: an attempt ends with its batch job, daemons or not."""
    own_allocation(caller, allocation_id)
    return {}


@router.get("/allocations/{allocation_id}/resources/{resources_id}/rendezvous")
async def rendezvous(allocation_id: str, resources_id: str, master: UsesMaster, caller: AnyCaller) -> JSONResponse:
    """Return the addresses of all nodes; waits for them, and answers 408 when some have not arrived: try again."""
    own_allocation(caller, allocation_id)

    def look() -> harness.HarnessRendezvous | None:
        return master.harness_reports.rendezvous(allocation_id, resources_id)

    nodes = await wait_for(
        master.wakeups,
        f"allocation:{allocation_id}",
        partial(master.threads.run, caller, look),
        min(master.settings.longest_poll, BARRIER),
    )
    if nodes is None:
        return envelope(408, "Not all nodes have arrived yet: try again.")
    return JSONResponse({"rendezvousInfo": {"addresses": nodes.addresses, "rank": nodes.rank, "slots": nodes.slots}})
