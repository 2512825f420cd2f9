"""Applies one action to many experiments; each succeeds or fails independently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from trainmaster.master.db.tables import Experiment, Project
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import ServiceError
from trainmaster.master.services.experiments.experiments import Experiments, ListQuery


@dataclass(frozen=True)
class ExperimentSelection:
    """A selection of experiments of a project: those that `query` finds without `excluded`, or, without a query, `ids`.
    `project_id`: clients send -1 for experiments of all projects, older ones 0."""

    project_id: int
    ids: Sequence[int] = ()
    query: ListQuery | None = None
    excluded: Sequence[int] = ()


@dataclass(frozen=True)
class ExperimentResult:
    """`error` is empty where it worked."""

    experiment_id: int
    error: str


class BulkActions(BoundService):
    """One action on many experiments."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiments = Experiments(master)

    def act(
        self, caller: Caller, selection: ExperimentSelection, action: Callable[[int], object]
    ) -> list[ExperimentResult]:
        results = []
        for experiment_id in self._chosen(caller, selection):
            try:
                action(experiment_id)
                results.append(ExperimentResult(experiment_id, ""))
            except ServiceError as error:
                results.append(ExperimentResult(experiment_id, error.message))
        answered = {result.experiment_id for result in results}
        missing = [] if selection.query else [number for number in selection.ids if number not in answered]
        results += [
            ExperimentResult(key, f"Experiment '{key}' not found in project {selection.project_id}.") for key in missing
        ]
        return results

    def _chosen(self, caller: Caller, selection: ExperimentSelection) -> list[int]:
        if selection.query is not None:
            page = self._experiments.list_page(caller, selection.query, 0, 0)
            return [view.row.id for view in page.items if view.row.id not in selection.excluded]
        query = select(Experiment.id).where(Experiment.id.in_(selection.ids))
        if caller.workspaces is not None:
            query = query.where(
                Experiment.project_id.in_(select(Project.id).where(Project.workspace_id.in_(caller.workspaces)))
            )
        if selection.project_id > 0:
            query = query.where(Experiment.project_id == selection.project_id)
        with self._store.transaction() as session:
            return list(session.scalars(query.order_by(Experiment.id)))
