"""Barriers between the nodes of a job: the rendezvous, and whatever else Determined's harness gathers.

Peers do not name their barrier: of each kind, the first contributions of as many peers as there are make the first
barrier, the next ones the second. Who contributes to one has had the answer of the one before, so that the entries of
earlier barriers go when a later one is complete.
"""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, BarrierEntry
from trainmaster.master.services import bounds
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.store import wake
from trainmaster.master.values.stored import Json


class Barriers(BoundService):
    """The barriers of jobs."""

    def gather(self, allocation_id: str, kind: str, request: str, peers: int, data: Json) -> list[Json] | None:
        """Contribute to a barrier of `peers`; returns all contributions once they are complete, else None.

        Calling it again with the same `request` changes nothing and returns the same. Raises NotFound, Invalid for more
        than an attempt may keep.
        """
        size = bounds.check_entry(self._settings.limits, data, "A contribution to a barrier")
        with self._store.transaction() as session:
            if session.get(Allocation, allocation_id, with_for_update=True) is None:
                raise NotFound(f"There is no allocation {allocation_id}.")
            number = _number(session, allocation_id, kind, request)
            if number is None:
                bounds.check_entries(
                    self._settings.limits, "The barriers of an attempt", *_kept(session, allocation_id), size
                )
                number = _next(session, allocation_id, kind, peers)
                entry = {"allocation_id": allocation_id, "kind": kind, "request_uuid": request, "data": data}
                session.add(BarrierEntry(**entry, number=number, size=size))
                session.flush()
            if _arrived(session, allocation_id, kind, number) < peers:
                return None
            earlier = (
                BarrierEntry.allocation_id == allocation_id,
                BarrierEntry.kind == kind,
                BarrierEntry.number < number,
            )
            session.execute(delete(BarrierEntry).where(*earlier))
            wake(session, f"allocation:{allocation_id}")
            return _together(session, allocation_id, kind, number)

    def missing(self, allocation_id: str, kind: str, request: str, peers: int) -> list[int]:
        """Return the ranks that have not yet arrived at a barrier; empty where its contributions name no ranks."""
        with self._store.transaction() as session:
            number = _number(session, allocation_id, kind, request)
            here = [] if number is None else _together(session, allocation_id, kind, number)
        ranks = {data.get("rank") for data in here}
        return (
            [rank for rank in range(peers) if rank not in ranks] if all(isinstance(rank, int) for rank in ranks) else []
        )

    def remove_of_ended(self) -> None:
        """Remove what attempts that are over have contributed."""
        over = (Allocation.id == BarrierEntry.allocation_id, Allocation.ended_at.is_not(None))
        with self._store.transaction() as session:
            session.execute(delete(BarrierEntry).where(*over).execution_options(synchronize_session=False))


def _number(session: Session, allocation_id: str, kind: str, request: str) -> int | None:
    """Return the barrier to which `request` has contributed."""
    of_barrier = (BarrierEntry.allocation_id == allocation_id, BarrierEntry.kind == kind)
    return session.scalar(select(BarrierEntry.number).where(*of_barrier, BarrierEntry.request_uuid == request))


def _next(session: Session, allocation_id: str, kind: str, peers: int) -> int:
    """Return the barrier of the next contribution."""
    of_barrier = (BarrierEntry.allocation_id == allocation_id, BarrierEntry.kind == kind)
    latest = session.scalar(select(func.max(BarrierEntry.number)).where(*of_barrier))
    if latest is None:
        return 0
    return latest + int(_arrived(session, allocation_id, kind, latest) >= peers)


def _arrived(session: Session, allocation_id: str, kind: str, number: int) -> int:
    here = (BarrierEntry.allocation_id == allocation_id, BarrierEntry.kind == kind, BarrierEntry.number == number)
    return session.scalar(select(func.count()).where(*here)) or 0


def _together(session: Session, allocation_id: str, kind: str, number: int) -> list[Json]:
    """Return the contributions so far to a barrier."""
    here = (BarrierEntry.allocation_id == allocation_id, BarrierEntry.kind == kind, BarrierEntry.number == number)
    return list(session.scalars(select(BarrierEntry.data).where(*here).order_by(BarrierEntry.id)))


def _kept(session: Session, allocation_id: str) -> tuple[int, int]:
    """How many entries an attempt has, and their bytes."""
    totals = select(func.count(), func.coalesce(func.sum(BarrierEntry.size), 0))
    count, size = session.execute(totals.where(BarrierEntry.allocation_id == allocation_id)).one()
    return int(count), int(size)
