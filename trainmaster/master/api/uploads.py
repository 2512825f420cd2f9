"""Endpoints by which a job sends checkpoints to an object store: the master signs, the job moves the bytes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from trainmaster.master.http.dependencies import AnyCaller, UsesMaster, own_allocation
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.files import uploads
from trainmaster.master.services.files.uploads import MOST_FILES, FilePlan, SentFile
from trainmaster.master.values.stored import Json
from trainmaster.storage.contract import VALID, SignedRequest

router = APIRouter(prefix="/api/x1/allocations/{allocation_id}/checkpoints/{uuid}", tags=["jobs"])

Path = Annotated[str, Field(max_length=4096)]
Paths = Annotated[list[Path], Field(max_length=MOST_FILES)]


class File(Body):
    path: Path
    size: int = Field(ge=0, lt=2**63)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Begin(Body):
    files: list[File] = Field(max_length=MOST_FILES)
    resend: bool = False


class Sign(Body):
    path: Path
    first: int = Field(1, ge=1, le=10_000)


class Finish(Body):
    path: Path
    marks: list[Annotated[str, Field(max_length=200)]] = Field(max_length=10_000)


class Named(Body):
    paths: Paths


class Done(Body):
    rank: int = Field(ge=-1, lt=2**31)
    sizes: bool = False


class Signed(Shape):
    url: str
    headers: dict[str, str]

    @classmethod
    def of(cls, request: SignedRequest) -> Signed:
        return cls(url=request.url, headers=dict(request.headers))


class Planned(Shape):
    """How a file gets into the store: `there` already, a `copy` by the master, one request `put`, or `parts`, a request
    for each `part` bytes."""

    path: str
    there: bool
    copied: bool
    put: Signed | None
    part: int
    parts: list[Signed]

    @classmethod
    def of(cls, plan: FilePlan) -> Planned:
        return cls(
            path=plan.path,
            there=plan.there,
            copied=plan.copy,
            put=Signed.of(plan.put) if plan.put else None,
            part=plan.part,
            parts=[Signed.of(request) for request in plan.parts],
        )


class BeginAnswer(Shape):
    files: list[Planned]
    authority: str  # certificates (PEM) by which the store is checked; empty: the machine's own
    valid: int  # seconds for which a signature holds


class DoneAnswer(Shape):
    ranks: list[int]
    missing: int
    sizes: dict[str, int]


@router.post("/begin")
def begin(allocation_id: str, uuid: str, body: Begin, master: UsesMaster, caller: AnyCaller) -> BeginAnswer:
    """Announce files; answers how each gets into the store."""
    own_allocation(caller, allocation_id)
    files = [SentFile(file.path, file.size, file.sha256) for file in body.files]
    plans, authority = master.uploads.begin(allocation_id, uuid, files, resend=body.resend)
    return BeginAnswer(files=[Planned.of(plan) for plan in plans], authority=authority, valid=VALID)


@router.post("/sign")
def sign(allocation_id: str, uuid: str, body: Sign, master: UsesMaster, caller: AnyCaller) -> Planned:
    """Sign the requests of a file again, from part `first` on."""
    own_allocation(caller, allocation_id)
    return Planned.of(master.uploads.sign(allocation_id, uuid, body.path, body.first))


@router.post("/finish")
def finish(allocation_id: str, uuid: str, body: Finish, master: UsesMaster, caller: AnyCaller) -> Json:
    """Put a large file together of its parts; `marks` are the store's answers (`ETag`)."""
    own_allocation(caller, allocation_id)
    master.uploads.finish(allocation_id, uuid, body.path, body.marks)
    return {}


@router.post("/sent")
def sent(allocation_id: str, uuid: str, body: Named, master: UsesMaster, caller: AnyCaller) -> Json:
    """Note small files that have arrived."""
    own_allocation(caller, allocation_id)
    master.uploads.sent(allocation_id, uuid, body.paths)
    return {}


@router.post("/copy")
def copy(allocation_id: str, uuid: str, body: Named, master: UsesMaster, caller: AnyCaller) -> Named:
    """Copy files whose content the store has already; answers those that must be sent after all."""
    own_allocation(caller, allocation_id)
    return Named(paths=master.uploads.copy(allocation_id, uuid, body.paths))


@router.post("/done")
def done(allocation_id: str, uuid: str, body: Done, master: UsesMaster, caller: AnyCaller) -> DoneAnswer:
    """Note that a rank has sent all of its files; -1 only asks who has."""
    own_allocation(caller, allocation_id)
    state: uploads.UploadState = master.uploads.done(allocation_id, uuid, body.rank, sizes=body.sizes)
    return DoneAnswer(ranks=state.ranks, missing=state.missing, sizes=state.sizes)


@router.post("/abandon")
def abandon(allocation_id: str, uuid: str, master: UsesMaster, caller: AnyCaller) -> Json:
    """Give a checkpoint up; its files are removed soon."""
    own_allocation(caller, allocation_id)
    master.uploads.abandon(allocation_id, uuid)
    return {}
