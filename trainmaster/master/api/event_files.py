"""Endpoints by which jobs move TensorBoard's event files to and from object stores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from trainmaster.master.http.dependencies import AnyCaller, UsesMaster, own_allocation
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.files.event_objects import EventObjects

router = APIRouter(prefix="/api/x1/allocations/{allocation_id}/events", tags=["allocations"])


class EventFile(Body):
    path: str
    size: int = Field(ge=0)


class PutEvents(Body):
    files: list[EventFile]


class SignedEvent(Shape):
    path: str
    size: int
    url: str
    headers: dict[str, str]


class SignedEvents(Shape):
    """`after`: what to ask for next; empty at the end."""

    files: list[SignedEvent]
    after: str
    authority: str

    @classmethod
    def of(cls, found: EventObjects) -> SignedEvents:
        files = [
            SignedEvent(path=one.path, size=one.size, url=one.request.url, headers=dict(one.request.headers))
            for one in found.files
        ]
        return cls(files=files, after=found.after, authority=found.authority)


@router.post("")
def put(allocation_id: str, body: PutEvents, master: UsesMaster, caller: AnyCaller) -> SignedEvents:
    """Sign uploads of event files of the job's trial."""
    own_allocation(caller, allocation_id)
    files = [(file.path, file.size) for file in body.files]
    return SignedEvents.of(master.event_object_files.sign_uploads(allocation_id, files))


@router.get("")
def get(
    allocation_id: str,
    master: UsesMaster,
    caller: AnyCaller,
    name: Annotated[str, Query(max_length=200)],
    after: Annotated[str, Query(max_length=4096)] = "",
) -> SignedEvents:
    """Sign downloads of what a TensorBoard shows under a name."""
    own_allocation(caller, allocation_id)
    return SignedEvents.of(master.event_object_files.sign_downloads(allocation_id, name, after))
