"""Endpoints for agents on Docker hosts: their calls under /api/x1, and Determined's list of them under /api/v1."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from inspect import iscoroutinefunction
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from trainmaster.agent_protocol.messages import AGENT_ID, MAX_REMAINS, TOKEN, AgentReport, ContainerState, Orders
from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.contract.agents import INBOX_PREFIX
from trainmaster.master.api.schemas.entities import Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import ServedMaster, Stranger, UserCaller, UsesMaster, bearer
from trainmaster.master.http.messages import Body, rfc3339
from trainmaster.master.http.parameters import Descending, sort_key
from trainmaster.master.http.waiting import waiting
from trainmaster.master.services.clusters import node_list
from trainmaster.master.services.clusters.node_list import NodeShown
from trainmaster.master.services.errors import TooLarge
from trainmaster.master.services.paging import cut
from trainmaster.master.services.resources import agents
from trainmaster.master.services.resources.agents import AgentCluster, AgentShown
from trainmaster.master.values.stored import Json
from trainmaster.version import API_VERSION

router = APIRouter(tags=["agents"])

CHECK_PERIOD = 5.0  # seconds between two looks for orders without a wake-up
MAX_WAIT = 30.0  # seconds of a long poll
MAX_ARCHIVE = MAX_REMAINS + 2**24  # bytes, with what a tar adds
MOST_SLOTS = 20_000  # on one page; a large cluster has more CPUs
IN_USE = "dispatcherrm-inuse-slot-placeholder"  # the published client recognizes it

AgentId = Annotated[str, Path(pattern=f"^{AGENT_ID}$")]
Token = Annotated[str, Path(pattern=f"^{TOKEN}$")]


def _sender(agent_id: str) -> tuple[str, str]:
    """Whose places in threads an agent's calls take."""
    return ("agent", agent_id)


async def _yard(agent_id: AgentId, request: Request, master: UsesMaster) -> AsyncIterator[AgentCluster]:
    """Yield the agent's cluster, while the endpoint works in a thread within the agent's share."""
    yard = master.agents.admit(agent_id, bearer(request))
    if iscoroutinefunction(request.scope["route"].endpoint):
        yield yard
        return
    async with master.threads.place_as(_sender(agent_id)):
        yield yard


AgentCaller = Annotated[AgentCluster, Depends(_yard, scope="function")]


@router.post("/api/x1/agents/{agent_id}/enrol")
def enrol(agent_id: AgentId, request: Request, master: UsesMaster, _: Stranger) -> Json:
    """Enrol a new agent: it sends the enrolment key as its bearer token, and gets a secret of its own."""
    return {"secret": master.agents.enrol(agent_id, bearer(request))}


@router.post("/api/x1/agents/{agent_id}/sync")
def sync(agent_id: AgentId, report: AgentReport, agent_cluster: AgentCaller) -> Orders:
    """Take in an agent's report of itself; return the jobs that it should run."""
    return agents.sync(agent_cluster, agent_id, report)


@router.get("/api/x1/agents/{agent_id}/orders")
async def orders(
    agent_id: AgentId,
    master: UsesMaster,
    agent_cluster: AgentCaller,
    known: Annotated[str, Query(max_length=64)] = "",
    wait: Annotated[float, Query(ge=0)] = 0.0,
) -> Orders:
    """Return the orders once they differ from revision `known`, or as they are after `wait` seconds."""
    subject = f"agent:{agent_id}"
    timeout = min(wait, MAX_WAIT, master.settings.longest_poll)
    with (
        waiting(master.wakeups, subject, timeout=timeout, period=CHECK_PERIOD) as turn,
        agents.listening(agent_cluster, agent_id, lambda: master.wakeups.fire(subject)),
    ):
        while True:
            answer = await master.threads.run_as(_sender(agent_id), agents.orders, agent_cluster, agent_id)
            if answer.revision != known or not await turn.again():
                return answer


@router.get("/api/x1/agents/{agent_id}/jobs/{token}/files", response_class=StreamingResponse)
def job_files(
    agent_id: AgentId,
    token: Token,
    master: UsesMaster,
    agent_cluster: AgentCaller,
    without: Annotated[list[str], Query()] = [],  # noqa: B006
) -> StreamingResponse:
    """Return the job's staged files as a tar, `without` those that the agent has from other jobs."""
    files = agents.job_files(agent_cluster, agent_id, token, without)
    return StreamingResponse(master.threads.pieces_as(_sender(agent_id), files), media_type="application/x-tar")


@router.put("/api/x1/agents/{agent_id}/jobs/{token}/remains")
async def remains(
    agent_id: AgentId,
    token: Token,
    request: Request,
    master: UsesMaster,
    agent_cluster: AgentCaller,
    node_rank: Annotated[int, Query(alias="nodeRank", ge=0)] = 0,
) -> Json:
    """Return what a container left, as a tar: `exit/<rank>.json`, `spool/<stream>.jsonl`, `output.txt`."""
    threads, sender = master.threads, _sender(agent_id)
    descriptor, name = await threads.run_as(sender, tempfile.mkstemp, prefix=INBOX_PREFIX, dir=agent_cluster.inbox)
    path = FilePath(name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            taken = 0
            async for piece in request.stream():
                taken += len(piece)
                if taken > MAX_ARCHIVE:
                    raise TooLarge(f"What a container leaves may be {MAX_REMAINS} bytes, no more.")
                await threads.run_as(sender, handle.write, piece)
        await threads.run_as(sender, agents.take_remains, agent_cluster, agent_id, token, node_rank, path)
    finally:
        path.unlink(missing_ok=True)
    return {}


# -- for people -------------------------------------------------------------------------------------------------------


@router.get("/api/v1/agents")
def list_agents(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    excludeSlots: bool = False,
    excludeContainers: bool = False,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_ID",
) -> Json:
    """Agents on Docker hosts, nodes of schedulers and this machine. Of more than `MOST_SLOTS` slots on a page
    only the first are listed individually; `slotStats` counts all."""
    listed: list[AgentShown | NodeShown] = [
        *master.agents.show(),
        *node_list.show(master.clusters),
    ]
    listed.sort(key=ORDERS[sort_key(sort_by, ORDERS, "id", enums.AGENTS)], reverse=bool(descending))
    window = cut(offset, limit, len(listed))
    shown, left = [], 0 if excludeSlots else MOST_SLOTS
    for one in listed[window.start : window.end]:
        size = len(one.slots) if isinstance(one, AgentShown) else one.slots
        shown.append(_agent(one, slots=size <= left, containers=not excludeContainers))
        left -= size
    return {"agents": shown, "pagination": Pagination.of(window).model_dump(by_alias=True)}


@router.get("/api/v1/agents/{agent_id}")
def get_agent(agent_id: AgentId, master: UsesMaster, caller: UserCaller) -> Json:
    return {"agent": _agent(_one(master, agent_id))}


@router.get("/api/v1/agents/{agent_id}/slots")
def list_slots(agent_id: AgentId, master: UsesMaster, caller: UserCaller) -> Json:
    return {"slots": list(_slots(_one(master, agent_id)).values())}


@router.get("/api/v1/agents/{agent_id}/slots/{slot_id}")
def get_slot(agent_id: AgentId, slot_id: int, master: UsesMaster, caller: UserCaller) -> JSONResponse:
    return JSONResponse({"slot": _slots(_one(master, agent_id)).get(str(slot_id))})


@router.delete("/api/x1/agent-secrets/{agent_id}")
def revoke(agent_id: AgentId, master: UsesMaster, caller: UserCaller) -> Json:
    """Revoke an agent's secret; the agent can enrol again with the new key."""
    master.agents.revoke(caller, agent_id)
    return {}


class DisableRequest(Body):
    agent_id: str = ""
    slot_id: str = ""
    drain: bool = False


@router.post("/api/v1/agents/{agent_id}/enable")
def enable_agent(agent_id: AgentId, master: UsesMaster, caller: UserCaller) -> Json:
    master.agents.enable(caller, agent_id)
    return get_agent(agent_id, master, caller)


@router.post("/api/v1/agents/{agent_id}/disable")
def disable_agent(
    agent_id: AgentId, master: UsesMaster, caller: UserCaller, body: DisableRequest | None = None
) -> Json:
    master.agents.disable(caller, agent_id, drain=bool(body and body.drain))
    return get_agent(agent_id, master, caller)


@router.post("/api/v1/agents/{agent_id}/slots/{slot_id}/enable")
def enable_slot(agent_id: AgentId, slot_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.agents.enable(caller, agent_id, slot_id)
    return {"slot": _slots(_one(master, agent_id)).get(str(slot_id))}


@router.post("/api/v1/agents/{agent_id}/slots/{slot_id}/disable")
def disable_slot(
    agent_id: AgentId, slot_id: int, master: UsesMaster, caller: UserCaller, body: DisableRequest | None = None
) -> Json:
    master.agents.disable(caller, agent_id, slot_id, drain=bool(body and body.drain))
    return {"slot": _slots(_one(master, agent_id)).get(str(slot_id))}


def _id(shown: AgentShown | NodeShown) -> str:
    return shown.agent.id if isinstance(shown, AgentShown) else shown.id


def _since(shown: AgentShown | NodeShown) -> tuple[float, str]:
    """When an agent registered, in epoch seconds; nodes of schedulers, which register nowhere, come first."""
    return (shown.registered_at.timestamp() if isinstance(shown, AgentShown) else 0.0, _id(shown))


ORDERS: Mapping[str, Callable[[AgentShown | NodeShown], Any]] = {"id": _id, "time": _since}


def _one(master: ServedMaster, agent_id: str) -> AgentShown | NodeShown:
    return master.agents.show_one(agent_id)


_STATES = {
    ContainerState.PREPARING: "STATE_PULLING",
    ContainerState.RUNNING: "STATE_RUNNING",
    ContainerState.EXITED: "STATE_TERMINATED",
    ContainerState.FAILED: "STATE_TERMINATED",
    ContainerState.GONE: "STATE_TERMINATED",
}
_ALIVE = frozenset({ContainerState.PREPARING, ContainerState.RUNNING})


def _agent(shown: AgentShown | NodeShown, *, slots: bool = True, containers: bool = True) -> Json:
    if isinstance(shown, NodeShown):
        return _node(shown, slots=slots)
    agent = shown.agent
    listed = _slots(shown)
    brands: dict[str, list[Json]] = {}
    types: dict[str, list[Json]] = {}
    for entry in listed.values():
        brands.setdefault(entry["device"]["brand"], []).append(entry)
        types.setdefault(entry["device"]["type"], []).append(entry)
    return {
        "id": agent.id,
        "registeredTime": rfc3339(shown.registered_at),
        "slots": listed if slots else {},
        "containers": {
            container.container_id or container.token: {
                "id": container.container_id or container.token,
                "state": _STATES[container.state],
            }
            for container in agent.containers
            if container.state in _ALIVE
        }
        if containers
        else {},
        "addresses": list(agent.addresses),
        "enabled": agent.enabled and agent.up,
        "draining": agent.draining,
        "version": API_VERSION,  # which scripts compare with the master's
        "trainmasterVersion": agent.version,
        "resourcePools": [agent.pool],
        "slotStats": {
            "typeStats": {key: _stats(entries) for key, entries in types.items()},
            "brandStats": {key: _stats(entries) for key, entries in brands.items()},
        },
        # Ours: why an agent takes no jobs although it is enabled.
        "up": agent.up,
        "problem": agent.problem,
    }


def _node(node: NodeShown, *, slots: bool) -> Json:
    """No slot names a job: only the scheduler knows which job holds which slot, and clients show the container's name
    for it."""
    stats = {
        "total": node.slots,
        "disabled": 0 if node.enabled else node.slots,
        "draining": node.slots if node.draining else 0,
        "states": {"STATE_RUNNING": node.used} if node.used else {},
    }
    return {
        "id": node.id,
        "registeredTime": None,
        "slots": _slots(node) if slots else {},
        "containers": {},
        "addresses": [node.id],
        "enabled": node.enabled,
        "draining": node.draining,
        "version": API_VERSION,
        "trainmasterVersion": "",
        "resourcePools": list(node.pools),
        "slotStats": {"typeStats": {_type(node.slot_type): stats} if node.slots else {}, "brandStats": {}},
        "up": node.enabled or node.draining,
        "problem": "",
    }


def _slots(shown: AgentShown | NodeShown) -> dict[str, Json]:
    return _slots_of_node(shown) if isinstance(shown, NodeShown) else _slots_of_agent(shown)


def _slots_of_node(node: NodeShown) -> dict[str, Json]:
    held = {"id": IN_USE, "parent": "", "state": "STATE_RUNNING", "permissionDenied": False}
    return {
        str(number): {
            "id": str(number),
            "device": {"id": number, "brand": "", "uuid": "", "type": _type(node.slot_type)},
            "enabled": node.enabled,
            "draining": node.draining,
            "container": held if number < node.used else None,
        }
        for number in range(node.slots)
    }


def _type(kind: SlotType) -> str:
    return f"TYPE_{kind.value.upper()}"


def _slots_of_agent(shown: AgentShown) -> dict[str, Json]:
    slots: dict[str, Json] = {}
    containers = {one.token: one for one in shown.agent.containers}
    for entry in shown.slots:
        slot, fact = entry.slot, entry.slot.fact
        container = containers.get(slot.token)
        slots[str(fact.id)] = {
            "id": str(fact.id),
            "device": {
                "id": fact.id,
                "brand": fact.name,
                "uuid": fact.uuid,
                "type": _type(fact.type),
            },
            "enabled": slot.enabled,
            "draining": slot.draining,
            "container": {
                "id": (container.container_id if container else "") or slot.job_id,
                "parent": entry.allocation_id,
                "state": _STATES[container.state] if container else "STATE_ASSIGNED",
            }
            if slot.token
            else None,
        }
    return slots


def _stats(entries: list[Json]) -> Json:
    states = Counter(entry["container"]["state"] for entry in entries if entry["container"])
    return {
        "total": len(entries),
        "disabled": sum(not entry["enabled"] for entry in entries),
        "draining": sum(entry["draining"] for entry in entries),
        "states": dict(states),
    }
