"""Endpoints that our runtime calls in every job: leases, reports and exits."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field, field_validator

from trainmaster.master.api.jobs import MAX_NODES
from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UsesMaster, own_allocation, peer_of
from trainmaster.master.http.job_route import JobRoute
from trainmaster.master.http.messages import Storable
from trainmaster.master.services.allocations.leases import LeaseRequest
from trainmaster.master.services.ingest import calls
from trainmaster.master.services.ingest.exits import ExitReport
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["jobs"], route_class=JobRoute)

MAX_STREAMS = 8  # of one node
END_OF_TIME = 2**37  # epoch seconds; later ones overflow a date
Rank = Annotated[int, Field(ge=0, lt=MAX_NODES)]


# Our runtime's bodies may hold more fields than these: a newer one is not turned away for a new word.


class Lease(Storable):
    job_id: str
    run_id: str = ""  # runtimes that name none count as the same one
    node_rank: Rank = 0
    num_nodes: int = Field(1, ge=1, le=MAX_NODES)
    node_name: str = ""
    slot_ids: list[int] = []  # noqa: RUF012
    addresses: list[Annotated[str, Field(max_length=256)]] = Field([], max_length=64)
    image_digest: str = Field("", max_length=300)
    fetches_context: bool = False  # the runtimes of jobs that an older master submitted expect it in the answer


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


@router.post("/api/x1/allocations/{allocation_id}/lease", response_model=Json)
async def lease(
    allocation_id: str, body: Lease, request: Request, master: UsesMaster, caller: AnyCaller
) -> JSONResponse:
    own_allocation(caller, allocation_id)
    asked = LeaseRequest(
        allocation_id=allocation_id,
        job_id=body.job_id,
        run_id=body.run_id,
        node_rank=body.node_rank,
        num_nodes=body.num_nodes,
        node_name=body.node_name,
        slot_ids=body.slot_ids,
        addresses=body.addresses,
        peer=peer_of(request),
        image_digest=body.image_digest,
    )
    work = await master.job_calls.leases.ask(asked)
    if work["context_size"] and not body.fetches_context:
        work["context"] = await master.threads.run(caller, _context, master, allocation_id)
    return await _answer(master, allocation_id, request, work)


def _context(master: ServedMaster, allocation_id: str) -> str:
    files = master.context_archives.whole(master.context_archives.key_of_allocation(allocation_id))
    return base64.b64encode(files).decode()


@router.post("/api/x1/allocations/{allocation_id}/reports", response_model=Json)
async def reports(
    allocation_id: str, body: Reports, request: Request, master: UsesMaster, caller: AnyCaller
) -> JSONResponse:
    """Take in a piece of a report stream. The answer comes after every decision that the reports led to."""
    own_allocation(caller, allocation_id)
    piece = StreamBatch(body.stream, body.first, body.records)
    answer = await master.job_calls.reports.ask(calls.ReportCall(allocation_id, piece))
    content = {
        "acked": answer.acked,
        "preempt": {"reason": answer.preempt} if answer.preempt is not None else None,
        "gone": answer.gone,
    }
    return await _answer(master, allocation_id, request, content)


@router.post("/api/x1/allocations/{allocation_id}/exit", response_model=Json)
async def exit_record(
    allocation_id: str, body: ExitRecord, request: Request, master: UsesMaster, caller: AnyCaller
) -> JSONResponse:
    """How a node ended, with what is left of its report streams. The answer says how much of these is taken in."""
    own_allocation(caller, allocation_id)
    rest = [StreamBatch(piece.stream, piece.first, piece.records) for piece in body.reports]
    report = ExitReport(allocation_id, body.model_dump(exclude={"reports"}), rest)
    return await _answer(master, allocation_id, request, {"acked": await master.job_calls.exits.ask(report)})


async def _answer(master: ServedMaster, allocation_id: str, request: Request, content: Json) -> JSONResponse:
    """Hold an answer back where the job sends too many bytes: a job says nothing more until it has its answer."""
    if wait := master.job_calls.pause(allocation_id, len(await request.body())):
        await asyncio.sleep(wait)
    return JSONResponse(content)
