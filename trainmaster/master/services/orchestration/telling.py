"""Brings trials into line with the state of their experiment, in steps: a pause or kill of thousands is committed with
the experiment's row, and its trials follow in transactions that let others in between."""

from __future__ import annotations

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment
from trainmaster.master.services.orchestration.experiment_orchestrator import locked_experiment
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import Settings, Store


def tell_trials(store: Store, settings: Settings, retries: Retries) -> None:
    """Takes one step for each experiment whose trials lag behind; one that has more of them wakes `TELLING`."""
    with store.autocommit() as session:
        due = list(session.scalars(select(Experiment.id).where(Experiment.tell_due).order_by(Experiment.id)))
    retries.each("telling the trials of experiment", due, lambda number: _tell(store, settings, number))


def _tell(store: Store, settings: Settings, experiment_id: int) -> None:
    with locked_experiment(store, settings, experiment_id) as orchestrator:
        if orchestrator.row.tell_due:
            orchestrator.tell_trials()
