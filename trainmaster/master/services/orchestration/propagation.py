"""Brings trials into line with the state of their experiment, in steps: a pause or kill of thousands is committed with
the experiment's row, and its trials follow in transactions that let others in between."""

from __future__ import annotations

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.retries import Retries


class Propagation(BoundService):
    """Propagation of an experiment's state to its trials."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def propagate(self, retries: Retries) -> None:
        """Take one step for each experiment whose trials lag behind; one that has more of them wakes `PROPAGATION`."""
        with self._store.autocommit() as session:
            due = list(session.scalars(select(Experiment.id).where(Experiment.propagation_due).order_by(Experiment.id)))
        retries.each("propagating the state of experiment", due, lambda number: self._propagate(number))

    def _propagate(self, experiment_id: int) -> None:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            if orchestrator.row.propagation_due:
                orchestrator.propagate()
