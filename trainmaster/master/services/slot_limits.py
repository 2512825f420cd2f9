"""`resources.max_slots` where the scheduler does not heed it: what an experiment may not have yet is not submitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.lifecycle.states import Submission
from trainmaster.master.services import logs
from trainmaster.master.services.store import Store
from trainmaster.master.services.submission import explain


@dataclass(frozen=True)
class SlotLimit:
    """Of one experiment: the slots that it may hold at once, those that its submitted attempts hold or wait for, and
    those of one trial."""

    most: int
    held: int
    each: int

    @property
    def room(self) -> int:
        """How many more attempts may be submitted."""
        return max(self.most - self.held, 0) // self.each if self.each else 2**31


def of_experiments(store: Store, under_way: Collection[str]) -> dict[int, SlotLimit]:
    """The limits of those live experiments that have one, by experiment. `under_way`: allocations that are about to be
    submitted, though their rows may not say so yet."""
    resources = Experiment.config["resources"]
    limit = resources["max_slots"].as_float()
    holds = (Allocation.submission != Submission.NEW.value) | Allocation.id.in_(under_way)
    held = func.coalesce(func.sum(Allocation.slots).filter(holds), 0)
    query = (
        select(Experiment.id, limit, held, resources["slots_per_trial"].as_float())
        .outerjoin(Trial, (Trial.experiment_id == Experiment.id) & Trial.end_time.is_(None))
        .outerjoin(Allocation, (Allocation.trial_id == Trial.id) & Allocation.ended_at.is_(None))
        .where(Experiment.end_time.is_(None), limit.is_not(None))
        .group_by(Experiment.id)
    )
    with store.reading() as session:
        rows = session.execute(query).all()
    return {number: SlotLimit(int(most), int(held), int(each or 0)) for number, most, held, each in rows}


def tell(store: Store, cluster: str, limits: Mapping[int, SlotLimit]) -> None:
    """Say why the oldest waiting attempt of each full experiment waits; the queue shows it for all of them."""
    for number, limit in limits.items():
        if limit.room:
            continue
        query = (
            select(Allocation.id, Allocation.explanation)
            .join(Trial, Trial.id == Allocation.trial_id)
            .where(
                Trial.experiment_id == number,
                Allocation.dispatcher == cluster,
                Allocation.ended_at.is_(None),
                Allocation.submission == Submission.NEW.value,
            )
            .order_by(Allocation.created_at, Allocation.trial_id)
            .limit(1)
        )
        with store.reading() as session:
            oldest = session.execute(query).first()
        text = f"Its experiment holds as many slots as it may (max_slots: {limit.most})."
        if oldest is not None and oldest.explanation != text:
            with store.transaction() as session:
                notes = logs.Notes()
                explain(notes, session.get_one(Allocation, oldest.id, with_for_update=True), text)
                session.flush()
                notes.write(session)
