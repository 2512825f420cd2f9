"""Preemption: which jobs are asked to leave, and what they answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import ARRAY, Text, any_, literal, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.access.identity import check_counts
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound, Unauthenticated
from trainmaster.master.services.store import wake

LONGEST_REASON = 200  # characters


class Preemptions(BoundService):
    """Preemption requests to jobs."""

    def reasons(self, allocations: Sequence[str]) -> list[str | Exception | None]:
        """For each allocation the reason of the preemption request, None without one, or an error; one query for all.

        The errors: NotFound, and Unauthenticated where the attempt ended too long ago for its token to count.
        """
        columns = Allocation.id, Allocation.preempt_reason, Allocation.preempt_at, Allocation.ended_at
        with self._store.autocommit() as session:
            rows = session.execute(select(*columns).where(Allocation.id == any_(literal(allocations, ARRAY(Text)))))
            by_id = {row.id: row for row in rows}
        reasons: list[str | Exception | None] = []
        for allocation_id in allocations:
            row = by_id.get(allocation_id)
            if row is None:
                reasons.append(NotFound(f"There is no allocation {allocation_id}."))
            elif row.ended_at is not None:
                reasons.append(_left_at(row.ended_at, row.preempt_reason))
            else:
                reasons.append((row.preempt_reason or "asked to") if row.preempt_at is not None else None)
        return reasons

    def acknowledge(self, allocation_id: str) -> None:
        with self._store.transaction() as session:
            _locked(session, allocation_id).preempt_acked = True

    def note_pending(self, allocation_id: str, reason: str) -> None:
        """Take in a job's own notice that it must leave (the scheduler warned it), so that all its ranks receive
        it."""
        with self._store.transaction() as session:
            allocation = _locked(session, allocation_id)
            note_pending_preemption(session, allocation, reason)


def _left_at(ended_at: dt.datetime, reason: str | None) -> str | Unauthenticated:
    try:
        check_counts(ended_at)
    except Unauthenticated as error:
        return error
    return reason or "the attempt is over"


def _locked(session: Session, allocation_id: str) -> Allocation:
    allocation = session.get(Allocation, allocation_id, with_for_update=True)
    if allocation is None:
        raise NotFound(f"There is no allocation {allocation_id}.")
    return allocation


def note_pending_preemption(session: Session, allocation: Allocation, reason: str) -> None:
    if allocation.preempt_at is None:
        allocation.preempt_at = now()
        allocation.preempt_reason = reason[:LONGEST_REASON]
        wake(session, f"allocation:{allocation.id}")
