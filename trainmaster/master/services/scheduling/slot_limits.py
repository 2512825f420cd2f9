"""Enforces `resources.max_slots` where the scheduler does not: attempts beyond the limit are not submitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.lifecycle.states import SubmissionState
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.scheduling.submission import explain
from trainmaster.master.values.configs import StoredConfig


@dataclass(frozen=True)
class SlotLimit:
    """The limit of one experiment: the slots that it may hold at once, those that its submitted attempts hold or wait
    for, and those of one trial."""

    most: int
    held: int
    each: int

    @property
    def room(self) -> int:
        """The number of further attempts that may be submitted."""
        return max(self.most - self.held, 0) // self.each if self.each else 2**31


class SlotLimits(BoundService):
    """The experiments' own limits of slots."""

    def of_experiments(self, cluster: str, under_way: Collection[str]) -> dict[int, SlotLimit]:
        """Return the limits of the experiments that have one and of which something waits to be submitted to the
        cluster, by experiment. `under_way`: allocations that are about to be submitted, though their rows may not show
        it yet."""
        resources = Experiment.config[StoredConfig.RESOURCES]
        limit = resources[StoredConfig.MAX_SLOTS].as_float()
        holds = (Allocation.submission != SubmissionState.NEW.value) | Allocation.id.in_(under_way)
        held = func.coalesce(func.sum(Allocation.slots).filter(holds), 0)
        query = (
            select(Experiment.id, limit, held, resources[StoredConfig.SLOTS_PER_TRIAL].as_float())
            .outerjoin(Trial, (Trial.experiment_id == Experiment.id) & Trial.end_time.is_(None))
            .outerjoin(Allocation, (Allocation.trial_id == Trial.id) & Allocation.ended_at.is_(None))
            .where(Experiment.id.in_(_waiting(cluster, Trial.experiment_id)), limit.is_not(None))
            .group_by(Experiment.id)
        )
        with self._store.autocommit() as session:
            rows = session.execute(query).all()
        return {number: SlotLimit(int(most), int(held), int(each or 0)) for number, most, held, each in rows}

    def explain_waits(self, cluster: str, limits: Mapping[int, SlotLimit], resting: Collection[str] = ()) -> None:
        """Explain why the oldest waiting attempt of each full experiment waits; the queue shows it for all of them.
        Not for pools in `resting`: their attempts get the pause as explanation."""
        texts = {
            number: f"Its experiment holds as many slots as it may (max_slots: {limit.most})."
            for number, limit in limits.items()
            if not limit.room
        }
        if not texts:
            return
        place = func.row_number().over(
            partition_by=Trial.experiment_id, order_by=(Allocation.created_at, Allocation.trial_id)
        )
        ranked = (
            _waiting(cluster, Allocation.id, Allocation.explanation, Trial.experiment_id, place.label("place"))
            .where(Trial.experiment_id.in_(texts), Allocation.pool.not_in(resting))
            .subquery()
        )
        with self._store.autocommit() as session:
            rows = session.execute(select(ranked).where(ranked.c.place == 1)).all()
        changed = {row.id: texts[row.experiment_id] for row in rows if row.explanation != texts[row.experiment_id]}
        if changed:
            with self._store.transaction() as session:
                notes = log_store.Notes()
                still = _waiting(cluster, Allocation).where(Allocation.id.in_(changed)).order_by(Allocation.id)
                for allocation in session.scalars(still.with_for_update(of=Allocation)):
                    explain(notes, allocation, changed[allocation.id])
                session.flush()
                notes.write(session)


def _waiting(cluster: str, *columns: Any) -> Select[Any]:
    """Condition on trials' attempts that are not submitted to the cluster's scheduler yet."""
    return (
        select(*columns)
        .select_from(Allocation)
        .join(Trial, Trial.id == Allocation.trial_id)
        .where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at.is_(None),
            Allocation.submission == SubmissionState.NEW.value,
        )
    )
