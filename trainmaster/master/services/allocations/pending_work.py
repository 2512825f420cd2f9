"""Finds in one query which steps a pass of the controller has work for; most passes need few of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select

from trainmaster.master.db.tables import Allocation
from trainmaster.master.lifecycle.states import SubmissionState
from trainmaster.master.services.allocations.endings import possibly_over
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService


@dataclass(frozen=True)
class PendingWork:
    """Whether there are live attempts of a cluster (or of none yet) of each kind."""

    unbound: bool  # they have no cluster yet
    overdue: bool  # they were asked to leave and have not left in time
    waiting: bool  # they are not submitted yet
    condemned: bool  # they must end
    over: bool  # there are signs that they have ended


class WorkSteps(BoundService):
    """The steps of a pass that have work in one cluster."""

    def pending(self, cluster: str) -> PendingWork:
        with self._store.autocommit() as session:
            return PendingWork(*session.execute(_AGENDA, {"cluster": cluster, "now": now()}).one())


def _any(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return func.coalesce(func.bool_or(and_(*conditions)), False)


# Every pass runs this statement: it is built once.
_MINE = Allocation.dispatcher == bindparam("cluster")
_NEW = Allocation.submission == SubmissionState.NEW.value
_AGENDA = select(
    _any(Allocation.dispatcher == ""),
    _any(Allocation.kill_at.is_(None), Allocation.preempt_deadline < bindparam("now")),
    _any(_MINE, _NEW, Allocation.kill_at.is_(None)),
    _any(Allocation.kill_at.is_not(None)),
    _any(_MINE, possibly_over()),
).where(Allocation.ended_at.is_(None), or_(_MINE, Allocation.dispatcher == ""))
