"""Brings trials into line with the state of their experiment, in steps: a pause or kill of thousands is committed with
the experiment's row, and its trials follow in transactions that let others in between."""

from __future__ import annotations

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment
from trainmaster.master.services.context import MasterContext
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentLock
from trainmaster.master.services.retries import Retries


class Propagation:
    """Propagation of an experiment's state to its trials."""

    def __init__(self, master: MasterContext) -> None:
        self._store = master.store
        self._settings = master.settings
        self._experiment_lock = ExperimentLock(master)

    def tell_trials(self, retries: Retries) -> None:
        """Take one step for each experiment whose trials lag behind; one that has more of them wakes `TELLING`."""
        with self._store.autocommit() as session:
            due = list(session.scalars(select(Experiment.id).where(Experiment.tell_due).order_by(Experiment.id)))
        retries.each("telling the trials of experiment", due, lambda number: self._tell(number))

    def _tell(self, experiment_id: int) -> None:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            if orchestrator.row.tell_due:
                orchestrator.tell_trials()
