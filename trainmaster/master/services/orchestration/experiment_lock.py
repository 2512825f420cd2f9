"""Opens one experiment for a change, under the lock of its row, and settles it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Experiment
from trainmaster.master.services.context import BoundService, Settings
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator


class ExperimentLock(BoundService):
    """Access to one experiment at a time, under its row lock."""

    @contextmanager
    def hold(self, experiment_id: int) -> Iterator[ExperimentOrchestrator]:
        """Yield a transaction on one experiment. Raises NotFound."""
        with (
            self._store.transaction() as session,
            locked_experiment_in(session, self._settings, experiment_id) as orchestrator,
        ):
            yield orchestrator


@contextmanager
def locked_experiment_in(session: Session, settings: Settings, experiment_id: int) -> Iterator[ExperimentOrchestrator]:
    """Yield the same inside a transaction that is already open and holds no other lock yet."""
    query = select(Experiment).where(Experiment.id == experiment_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    if row is None:
        raise NotFound(f"There is no experiment {experiment_id}.")
    orchestrator = ExperimentOrchestrator(session, settings, row)
    yield orchestrator
    orchestrator.settle()
