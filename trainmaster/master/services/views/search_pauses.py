"""When a search paused its trials, and when it resumed them: as the story of the experiment tells it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Story
from trainmaster.master.services.clock import epoch


@dataclass(frozen=True)
class SearchPause:
    """A pause of a trial: the decision's time, its reason and its id in the story, and the same of the decision that
    resumed the trial; `until` None: none has."""

    at: float
    why: str
    story: int
    until: float | None = None
    resumed_by: int | None = None


Pauses = dict[int, list[SearchPause]]
"""Pauses of each trial that has one, by its id, in order."""


def read(session: Session, experiment_id: int, trials: Sequence[int] | None = None) -> Pauses:
    """Return the pauses of an experiment's trials, or of some of them."""
    query = select(Story.trial_id, Story.id, Story.at, Story.event, Story.why).where(
        Story.experiment_id == experiment_id, Story.subject == "search", Story.event.in_(("Pause", "Resume"))
    )
    if trials is not None:
        query = query.where(Story.trial_id.in_(trials))
    pauses: Pauses = defaultdict(list)
    for row in session.execute(query.order_by(Story.id)):
        if row.trial_id is None:
            continue
        known = pauses[row.trial_id]
        if row.event == "Pause":
            known.append(SearchPause(epoch(row.at), row.why, row.id))
        elif known:
            known[-1] = replace(known[-1], until=epoch(row.at), resumed_by=row.id)
    return {trial: known for trial, known in pauses.items() if known}
