"""The story of an experiment: every transition with its reason, in order, some at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment, Story
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound

SUBJECTS = ("search", "trial", "experiment")


@dataclass(frozen=True)
class EventsRequest:
    """Which events. `after`, `before`: ids between which they lie, 0 for the beginning and for the end; `newest`: the
    newest first. `trial_id`, `subject`: only those of a trial, or of one of SUBJECTS."""

    limit: int
    after: int = 0
    before: int = 0
    newest: bool = False
    trial_id: int | None = None
    subject: str = ""


class ExperimentStory(BoundService):
    """The recorded events of experiments, page by page."""

    def page(self, experiment_id: int, wanted: EventsRequest) -> tuple[Sequence[Story], bool]:
        """Events, and whether there are more. Raises NotFound, Invalid."""
        query = select(Story).where(Story.experiment_id == experiment_id, Story.id > wanted.after)
        if wanted.before:
            query = query.where(Story.id < wanted.before)
        if wanted.trial_id is not None:
            query = query.where(Story.trial_id == wanted.trial_id)
        if wanted.subject:
            if wanted.subject not in SUBJECTS:
                raise Invalid(f"subject: it is one of {', '.join(SUBJECTS)}, not {wanted.subject[:50]!r}.")
            query = query.where(Story.subject == wanted.subject)
        order = Story.id.desc() if wanted.newest else Story.id
        with self._store.transaction() as session:
            if session.get(Experiment, experiment_id) is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            rows = list(session.scalars(query.order_by(order).limit(wanted.limit + 1)))
        return rows[: wanted.limit], len(rows) > wanted.limit
