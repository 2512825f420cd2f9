"""Runs: trials as a list of their own, across the experiments of a project.

To a user, a run of an experiment with one trial and that experiment are the same thing: an action on the run is done to
the experiment. A trial of a search can only be killed by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, cast, func, select

from trainmaster.config.limits import Limits
from trainmaster.master.db.tables import Experiment, Project, Trial, User, Workspace
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, ServiceError
from trainmaster.master.services.experiments.experiment_search import (
    SearchColumn,
    at_path,
    condition,
    measured_column,
    order_of,
    parsed,
    window_of,
)
from trainmaster.master.services.paging import Page

_t, _e = Trial.__table__.c, Experiment.__table__.c
_local: ColumnElement[Any] = Project.__table__.c.key + "-" + cast(_t.id, Text)
_COLUMNS: dict[str, SearchColumn] = {
    "id": SearchColumn(_t.id, "number"),
    "projectId": SearchColumn(_e.project_id, "number"),
    "experimentId": SearchColumn(_e.id, "number"),
    "forkedFrom": SearchColumn(_e.parent_id, "number"),
    "checkpointCount": SearchColumn(_t.checkpoint_count, "number"),
    "checkpointSize": SearchColumn(_t.checkpoint_size, "number"),
    "searcherMetricsVal": SearchColumn(_t.searcher_metric, "number"),
    "experimentProgress": SearchColumn(_e.progress, "number"),
    "duration": SearchColumn(func.extract("epoch", func.coalesce(_t.end_time, func.now()) - _t.start_time), "number"),
    "state": SearchColumn(_t.state, "text"),
    "experimentName": SearchColumn(_e.name, "text"),
    "experimentDescription": SearchColumn(_e.description, "text"),
    "resourcePool": SearchColumn(_e.resource_pool, "text"),
    "searcherType": SearchColumn(_e.searcher_type, "text"),
    "searcherMetric": SearchColumn(_e.searcher_metric, "text"),
    "externalRunId": SearchColumn(_t.external_id, "text"),
    "externalExperimentId": SearchColumn(_e.external_id, "text"),
    "localId": SearchColumn(_local, "text"),
    "user": SearchColumn(User.__table__.c.username, "text"),
    "archived": SearchColumn(cast(_e.archived, Text), "text"),
    "isExpMultitrial": SearchColumn(cast(_e.num_trials > 1, Text), "text"),
    "logPolicyMatched": SearchColumn(_t.log_policy, "text"),
    "startTime": SearchColumn(_t.start_time, "time"),
    "endTime": SearchColumn(_t.end_time, "time"),
    "tags": SearchColumn(_e.labels, "tags"),
    "labels": SearchColumn(_e.labels, "tags"),
}
NAMES = tuple(_COLUMNS)


@dataclass(frozen=True)
class Run:
    trial: Trial
    experiment: Experiment
    project: Project
    workspace: Workspace

    @property
    def duration(self) -> int | None:
        end: dt.datetime | None = self.trial.end_time
        return int((end - self.trial.start_time).total_seconds()) if end else None


@dataclass(frozen=True)
class RunSelection:
    """A selection of runs: those that `filter` finds, or, without one, `ids`; of a project, or of all."""

    ids: Sequence[int] = ()
    filter: str = ""
    project_id: int | None = None


@dataclass(frozen=True)
class RunResult:
    """`error` is empty where it worked."""

    run_id: int
    error: str


class Runs(BoundService):
    """Trials across the experiments of a project."""

    def search(
        self, caller: Caller, project_id: int | None, wanted: str, sort: str, offset: int, limit: int
    ) -> Page[Run]:
        """`limit` 0 stands for 100, -1 for everything, -2 for the count alone. Raises Invalid."""
        statement = _chosen(self._limits, caller, project_id, wanted)
        with self._store.transaction() as session:
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = window_of(offset, limit, total)
            page = (
                statement.order_by(*order_of(self._limits, sort, _column), Trial.id.desc())
                .offset(window.start)
                .limit(window.size)
            )
            ids = list(session.scalars(page))
            query = (
                select(Trial, Experiment, Project, Workspace)
                .join(Experiment, Experiment.id == Trial.experiment_id)
                .join(Project, Project.id == Experiment.project_id)
                .join(Workspace, Workspace.id == Project.workspace_id)
                .where(Trial.id.in_(ids))
            )
            runs = {row[0].id: Run(*row) for row in session.execute(query)}
        return Page([runs[key] for key in ids], window)

    def act(
        self,
        caller: Caller,
        selection: RunSelection,
        action: Callable[[int, int], object],
        *,
        not_alone: str = "",
    ) -> list[RunResult]:
        """Apply `action` to each run; it gets the run and its experiment. `not_alone`: why it cannot be done to one
        of several trials, with a placeholder for the run's number; empty where it can. Each succeeds or fails
        independently."""
        statement = _chosen(self._limits, caller, selection.project_id, selection.filter)
        if not selection.filter:
            statement = statement.where(Trial.id.in_(selection.ids))
        with self._store.transaction() as session:
            rows = session.execute(statement.add_columns(Experiment.id, Experiment.num_trials).order_by(Trial.id)).all()
        results = []
        for run_id, experiment_id, trials in rows:
            if trials > 1 and not_alone:
                results.append(RunResult(run_id, not_alone.format(run_id)))
                continue
            try:
                action(run_id, experiment_id)
                results.append(RunResult(run_id, ""))
            except ServiceError as error:
                results.append(RunResult(run_id, error.message))
        known = {result.run_id for result in results}
        missing = [] if selection.filter else [key for key in selection.ids if key not in known]
        return results + [RunResult(key, f"Run with id '{key}' not found here.") for key in missing]


# -- inside -------------------------------------------------------------------------------------------------------


def _chosen(limits: Limits, caller: Caller, project_id: int | None, wanted: str) -> Select[Any]:
    tree = parsed(limits, wanted)
    statement = (
        select(Trial.id)
        .join(Experiment, Experiment.id == Trial.experiment_id)
        .join(Project, Project.id == Experiment.project_id)
        .join(User, User.id == Experiment.owner_id)
        .where(condition(tree.get("filterGroup") or {}, _column))
    )
    if wanted and not tree.get("showArchived", False):
        statement = statement.where(~Experiment.archived)
    if project_id:
        statement = statement.where(Experiment.project_id == project_id)
    if caller.workspaces is not None:
        statement = statement.where(Project.workspace_id.in_(caller.workspaces))
    return statement


def _column(name: str) -> SearchColumn:
    if name in _COLUMNS:
        return _COLUMNS[name]
    if name.startswith("metadata."):
        return SearchColumn(at_path(Trial.__table__.c.metadata, name.removeprefix("metadata.")), "json")
    if column := measured_column(name):
        return column
    raise Invalid(
        f"There is no column {name!r}; there are {', '.join(sorted(_COLUMNS))}, hp.NAME, metadata.NAME and "
        "GROUP.METRIC.min (or max, mean, last)."
    )
