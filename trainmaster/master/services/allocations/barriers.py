"""Barriers between the nodes of a job: the rendezvous, and whatever else Determined's harness gathers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, BarrierEntry
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.store import Store, wake

Json = dict[str, Any]


def gather(store: Store, allocation_id: str, kind: str, request: str, peers: int, data: Json) -> list[Json] | None:
    """Contributes to a barrier of `peers`; returns all contributions once they are complete, else None.

    Calling it again with the same `request` changes nothing and returns the same.
    """
    with store.transaction() as session:
        if session.get(Allocation, allocation_id, with_for_update=True) is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        row = {"allocation_id": allocation_id, "kind": kind, "request_uuid": request, "data": data}
        session.execute(insert(BarrierEntry).values(**row).on_conflict_do_nothing())
        together = _together(session, allocation_id, kind, request, peers)
        if len(together) < peers:
            return None
        wake(session, f"allocation:{allocation_id}")
        return together


def missing(store: Store, allocation_id: str, kind: str, request: str, peers: int) -> list[int]:
    """The ranks that have not yet arrived at a barrier; empty where its contributions name no ranks."""
    with store.transaction() as session:
        ranks = {data.get("rank") for data in _together(session, allocation_id, kind, request, peers)}
    return [rank for rank in range(peers) if rank not in ranks] if all(isinstance(rank, int) for rank in ranks) else []


def _together(session: Session, allocation_id: str, kind: str, request: str, peers: int) -> list[Json]:
    """The contributions so far to the barrier of `request`."""
    mine = select(BarrierEntry).where(BarrierEntry.allocation_id == allocation_id, BarrierEntry.kind == kind)
    rows = list(session.scalars(mine.order_by(BarrierEntry.id)))
    position = next(i for i, found in enumerate(rows) if found.request_uuid == request)
    first = position - position % max(peers, 1)
    return [found.data for found in rows[first : first + max(peers, 1)]]
