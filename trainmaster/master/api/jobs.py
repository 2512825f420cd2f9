"""What runs inside jobs talks to: our runtime's calls under /api/x1, Determined's harness' under /api/v1."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field, PrivateAttr, field_validator
from starlette.concurrency import run_in_threadpool

from trainmaster.master.api.dependencies import (
    AnyCaller,
    Services,
    UsesServices,
    own_allocation,
    own_trial,
    peer_of,
)
from trainmaster.master.api.shapes import Body, Storable
from trainmaster.master.services.allocations import barriers, exit_reports, job_reports, leases, metric_batches
from trainmaster.master.services.allocations.exit_reports import ExitReport
from trainmaster.master.services.allocations.job_log import StreamBatch
from trainmaster.master.services.allocations.leases import LeaseRequest
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.experiments import trials
from trainmaster.master.services.files import archives

router = APIRouter(tags=["jobs"])
Json = dict[str, Any]
T = TypeVar("T")

LOOK_AGAIN = 5.0  # seconds after which a long poll looks again even if nothing woke it
MAX_NODES = 100_000
MAX_STREAMS = 8  # of one node
END_OF_TIME = 2**37  # epoch seconds; later ones overflow a date
Rank = Annotated[int, Field(ge=0, lt=MAX_NODES)]


# Our runtime's bodies may hold more fields than these: a newer one is not turned away for a new word.


class Lease(Storable):
    job_id: str
    run_id: str = ""  # whoever says none is taken for one and the same
    node_rank: Rank = 0
    num_nodes: int = Field(1, ge=1, le=MAX_NODES)
    node_name: str = ""
    slot_ids: list[int] = []  # noqa: RUF012
    addresses: list[Annotated[str, Field(max_length=256)]] = Field([], max_length=64)
    fetches_context: bool = False  # the runtimes of jobs that an older master submitted expect it in the answer
    _peer: str = PrivateAttr("")

    def from_peer(self, peer: str) -> Lease:
        """Note where the job speaks from, which no job says of itself."""
        self._peer = peer
        return self


class Reports(Storable):
    stream: str = Field("core", min_length=1, max_length=64)
    first: int = Field(1, ge=1, le=2**53)
    records: list[Json] = []  # noqa: RUF012
    node_rank: Rank = 0

    @field_validator("records")
    @classmethod
    def _timed(cls, records: list[Json]) -> list[Json]:
        for number, record in enumerate(records):
            time = record.get("t", 0)
            if not isinstance(time, int | float) or not 0 <= time < END_OF_TIME:
                raise ValueError(f"record {number}: t must be seconds since 1970, but is {time!r}")
        return records


class ExitRecord(Storable):
    model_config = ConfigDict(extra="allow")
    node_rank: Rank = 0
    exit_code: int
    reports: list[Reports] = Field([], max_length=MAX_STREAMS)


@router.post("/api/x1/allocations/{allocation_id}/lease")
def lease(allocation_id: str, body: Lease, request: Request, services: UsesServices, caller: AnyCaller) -> Json:
    """Bind the allocation to this job. 409: another job has it, or an earlier run of this one, or it is over."""
    own_allocation(caller, allocation_id)
    return give_lease(services, allocation_id, body.from_peer(peer_of(request)))


def give_lease(services: Services, allocation_id: str, body: Lease) -> Json:
    work = leases.lease(services.store, services.settings, allocation_id, _request(body), _slot_types(services))
    if work["context_size"] and not body.fetches_context:
        files = archives.whole(services.store, archives.key_of_allocation(services.store, allocation_id))
        work["context"] = base64.b64encode(files).decode()
    return work


def give_leases(services: Services, asked: Sequence[tuple[str, Lease]]) -> list[Json | None]:
    """Of different attempts; None for those that are to be asked for by themselves."""
    requests = {name: _request(body) for name, body in asked if body.fetches_context}
    if not requests:
        return [None for _ in asked]
    works = leases.lease_together(services.store, services.settings, requests, _slot_types(services))
    return [works.get(name) for name, _ in asked]


def _request(body: Lease) -> LeaseRequest:
    return LeaseRequest(
        body.job_id,
        body.run_id,
        body.node_rank,
        body.num_nodes,
        body.node_name,
        body.slot_ids,
        body.addresses,
        body._peer,
    )


def _slot_types(services: Services) -> dict[str, str]:
    """By pool."""
    return {entry.pool.name: entry.pool.slot_type.value for entry in services.clusters.pools(fresh=3600.0)}


@router.post("/api/x1/allocations/{allocation_id}/reports")
def reports(allocation_id: str, body: Reports, services: UsesServices, caller: AnyCaller) -> Json:
    """Take in a piece of a report stream. The answer comes after every decision that the reports led to."""
    own_allocation(caller, allocation_id)
    return take_reports(services, allocation_id, body)


def take_reports(services: Services, allocation_id: str, body: Reports) -> Json:
    answer = job_reports.take_reports(
        services.store, services.settings, allocation_id, body.stream, body.first, body.records
    )
    return _as_json(answer)


def take_measurements(services: Services, sent: Sequence[tuple[str, Reports]]) -> list[Json | None]:
    """Reports of different attempts; None for those that are more than plain measurements."""
    plain = [
        metric_batches.Sent(name, body.first, body.records)
        for name, body in sent
        if body.stream == "core" and metric_batches.is_plain(body.records)
    ]
    answers = metric_batches.take_together(services.store, plain) if plain else []
    taken = {item.allocation_id: answer for item, answer in zip(plain, answers, strict=True) if answer is not None}
    return [_as_json(taken[name]) if name in taken else None for name, _ in sent]


def _as_json(answer: job_reports.ReportAnswer) -> Json:
    return {
        "acked": answer.acked,
        "preempt": {"reason": answer.preempt} if answer.preempt is not None else None,
        "gone": answer.gone,
    }


@router.post("/api/x1/allocations/{allocation_id}/exit")
def exit_record(allocation_id: str, body: ExitRecord, services: UsesServices, caller: AnyCaller) -> Json:
    """How a node ended, with what is left of its report streams. The answer says how much of these is taken in."""
    own_allocation(caller, allocation_id)
    return take_exit(services, allocation_id, body)


def take_exit(services: Services, allocation_id: str, body: ExitRecord) -> Json:
    word = _last_word(allocation_id, body)
    acked = exit_reports.take_exit(services.store, services.settings, allocation_id, word.record, word.rest)
    return {"acked": acked}


def take_exits(services: Services, said: Sequence[tuple[str, ExitRecord]]) -> list[Json | None]:
    """Of different attempts; None for those that are to be taken in by themselves."""
    taken = exit_reports.take_exits_together(services.store, [_last_word(name, body) for name, body in said])
    return [None if acked is None else {"acked": acked} for acked in taken]


def _last_word(allocation_id: str, body: ExitRecord) -> ExitReport:
    rest = [StreamBatch(piece.stream, piece.first, piece.records) for piece in body.reports]
    return ExitReport(allocation_id, body.model_dump(exclude={"reports"}), rest)


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
            raise Conflict(f"The attempt {allocation_id} is over; no other node will come.")
        return found

    found = await _wait(services, f"allocation:{allocation_id}", look, services.settings.longest_poll)
    if found is None:
        away = await run_in_threadpool(
            barriers.missing, services.store, allocation_id, kind, body.request_uuid, body.num_peers
        )
        named = f"; missing: node {', '.join(map(str, away[:8]))}{' and more' if away[8:] else ''}" if away else ""
        message = f"Not all {body.num_peers} peers have come yet: ask again with the same requestUuid{named}."
        return JSONResponse({"error": {"code": 1, "reason": "Canceled", "error": message}}, 408)
    return JSONResponse({"data": found})


@router.get("/api/v1/allocations/{allocation_id}/signals/preemption")
async def preemption_signal(
    allocation_id: str,
    services: UsesServices,
    caller: AnyCaller,
    timeout_seconds: Annotated[float, Query(alias="timeoutSeconds")] = 0,
) -> Json:
    """Wait until the job should leave, at most the time-out."""
    own_allocation(caller, allocation_id)

    def look() -> str | None:
        return job_reports.preemption(services.store, allocation_id)

    timeout = min(max(timeout_seconds, 0.0), services.settings.longest_poll)
    reason = await _wait(services, f"allocation:{allocation_id}", look, timeout)
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


async def _wait(services: Services, subject: str, look: Callable[[], T | None], timeout: float) -> T | None:
    """What `look` finds, waiting for it at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with services.wakeups.listening(subject) as woken:
        while True:
            woken.clear()
            found = await run_in_threadpool(look)
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or services.wakeups.closed:
                return found
            try:
                await asyncio.wait_for(woken.wait(), min(left, LOOK_AGAIN))
            except TimeoutError:
                continue
