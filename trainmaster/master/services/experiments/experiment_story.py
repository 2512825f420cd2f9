"""The story of an experiment: every transition with its reason, in order, some at a time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment, Story
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.store import Store


def page(
    store: Store, experiment_id: int, after: int, limit: int, trial_id: int | None = None
) -> tuple[Sequence[Story], bool]:
    """Events behind the one with the id `after`, and whether there are more; of one trial only if it is given. Raises
    NotFound."""
    query = select(Story).where(Story.experiment_id == experiment_id, Story.id > after)
    if trial_id is not None:
        query = query.where(Story.trial_id == trial_id)
    with store.transaction() as session:
        if session.get(Experiment, experiment_id) is None:
            raise NotFound(f"There is no experiment {experiment_id}.")
        found = list(session.scalars(query.order_by(Story.id).limit(limit + 1)))
    return found[:limit], len(found) > limit
