"""Lists which metrics the trials of experiments have reported, and the course of their validations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from trainmaster.master.db.tables import METRICS_OF, Experiment, Project, Trial
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.metrics.metric_reports import number

_GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}


@dataclass(frozen=True)
class MetricNames:
    """Metrics that were reported. `named`: group and name of each; `live`: there may be more later."""

    searcher: Sequence[str]
    named: Sequence[tuple[str, str]]
    live: bool

    def of(self, group: str) -> list[str]:
        return [name for known, name in self.named if known == group]


class MetricLists(BoundService):
    """The metrics that trials have reported."""

    def of_experiments(self, caller: Caller, ids: Sequence[int]) -> MetricNames:
        """Return the metrics of these experiments. Raises NotFound, also for experiments that the caller may not
        see."""
        query = (
            select(Experiment.id, Experiment.searcher_metric, Experiment.end_time, Project.workspace_id)
            .join(Project, Project.id == Experiment.project_id)
            .where(Experiment.id.in_(ids))
            .order_by(Experiment.id)
        )
        with self._store.transaction() as session:
            rows = [row for row in session.execute(query) if caller.sees(row.workspace_id)]
            if missing := set(ids) - {row.id for row in rows}:
                raise NotFound(f"There is no experiment {min(missing)}.")
            keys = select(Trial.summary_metrics, func.jsonb_object_keys(Trial.summary_metrics).label("key"))
            each = keys.where(Trial.experiment_id.in_(ids)).subquery().c
            pairs = select(each.key, func.jsonb_object_keys(each.summary_metrics[each.key])).distinct()
            pairs_by_name = sorted((_GROUPS.get(key, key), metric) for key, metric in session.execute(pairs))
        searcher = sorted({row.searcher_metric for row in rows})
        return MetricNames(searcher, pairs_by_name, any(row.end_time is None for row in rows))

    def validation_history(self, experiment_id: int) -> list[Validation]:
        """Return the searcher's metric in every validation of the experiment, in the order of time."""
        m = METRICS_OF["validation"].c
        with self._store.transaction() as session:
            metric = session.scalar(select(Experiment.searcher_metric).where(Experiment.id == experiment_id))
            if metric is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            value = func.jsonb_extract_path(m.metrics, "validation_metrics", metric)
            trials = select(Trial.id).where(Trial.experiment_id == experiment_id)
            query = select(m.trial_id, m.at, value).where(m.trial_id.in_(trials), ~m.archived, m.group == "validation")
            rows = session.execute(query.order_by(m.at, m.id)).all()
        values = ((trial_id, at, number(shown)) for trial_id, at, shown in rows)
        return [Validation(trial_id, at, shown) for trial_id, at, shown in values if shown is not None]


@dataclass(frozen=True)
class Validation:
    trial_id: int
    at: dt.datetime
    value: float
