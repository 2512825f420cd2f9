"""Series of one metric: thinned out for plots, sampled over the trials of a search, cut at one number of steps.

PostgreSQL thins: of each stretch of a series its lowest and its highest point stay, so that no spike is lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, case, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Experiment, Project, Trial
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.metrics import MAX_STEPS, kind_of
from trainmaster.master.services.store import Store

MOST_POINTS = 10_000
MOST_TRIALS = 1000


@dataclass(frozen=True)
class Named:
    """A metric of a group: training, validation, or one of the trial's own."""

    group: str
    name: str


@dataclass(frozen=True)
class Stretch:
    """Which part of a series; `points` at most, 0 for all there are."""

    first: int = 0
    last: int = MAX_STEPS
    points: int = 0


@dataclass(frozen=True)
class Point:
    steps: int
    at: dt.datetime
    value: float
    epoch: float | None


@dataclass(frozen=True)
class TrialSeries:
    trial: Trial
    points: Sequence[Point]


@dataclass(frozen=True)
class Snapshot:
    trial_id: int
    hparams: Mapping[str, Any]
    value: float
    steps: int


def batches(store: Store, experiment_id: int, metric: Named) -> tuple[list[int], bool]:
    """At which steps any trial of an experiment reported a metric; and whether there may be more. Raises NotFound."""
    m, value = _table(metric)
    with store.transaction() as session:
        experiment = _experiment(session, experiment_id)
        mine = select(Trial.id).where(Trial.experiment_id == experiment_id)
        query = select(m.c.steps).distinct().where(m.c.trial_id.in_(mine), ~m.c.archived, m.c.group == metric.group)
        found = session.scalars(query.where(value.is_not(None)).order_by(m.c.steps))
        return list(found), experiment.end_time is None


def sample(
    store: Store, experiment_id: int, metric: Named, stretch: Stretch, most_trials: int
) -> tuple[list[TrialSeries], bool]:
    """The best trials of an experiment with their series; and whether there may be more."""
    with store.transaction() as session:
        experiment = _experiment(session, experiment_id)
        column = Trial.__table__.c.searcher_metric
        order = column.asc() if experiment.smaller_is_better else column.desc()
        mine = select(Trial).where(Trial.experiment_id == experiment_id).order_by(order.nulls_last(), Trial.id)
        rows = list(session.scalars(mine.limit(min(most_trials or 100, MOST_TRIALS))))
        return [
            TrialSeries(row, _points(session, row.id, metric, stretch)) for row in rows
        ], experiment.end_time is None


def snapshot(store: Store, experiment_id: int, metric: Named, steps: int, margin: int) -> tuple[list[Snapshot], bool]:
    """What each trial measured at `steps`, or at most `margin` later; and whether there may be more."""
    m, value = _table(metric)
    with store.transaction() as session:
        experiment = _experiment(session, experiment_id)
        query = (
            select(Trial.id, Trial.hparams, value, m.c.steps)
            .distinct(Trial.id)
            .join(m, m.c.trial_id == Trial.id)
            .where(Trial.experiment_id == experiment_id, ~m.c.archived, m.c.group == metric.group)
            .where(m.c.steps.between(steps, min(steps + margin, MAX_STEPS)), value.is_not(None))
            .order_by(Trial.id, m.c.steps)
        )
        return [Snapshot(*row) for row in session.execute(query).tuples()], experiment.end_time is None


def compare(
    store: Store, caller: Caller, trial_ids: Sequence[int], metrics: Sequence[Named], stretch: Stretch
) -> list[tuple[Trial, Mapping[Named, Sequence[Point]]]]:
    """Series of several trials. Raises NotFound, Forbidden, Invalid."""
    if len(trial_ids) > MOST_TRIALS:
        raise Invalid(f"Not more than {MOST_TRIALS} trials are compared at once.")
    query = select(Trial, Project.workspace_id).join(Experiment, Experiment.id == Trial.experiment_id)
    query = query.join(Project, Project.id == Experiment.project_id).where(Trial.id.in_(trial_ids)).order_by(Trial.id)
    with store.transaction() as session:
        rows = session.execute(query).tuples().all()
        for _, home in rows:
            caller.check(home)
        if missing := set(trial_ids) - {row.id for row, _ in rows}:
            raise NotFound(f"There is no trial {min(missing)}.")
        return [(row, {one: _points(session, row.id, one, stretch) for one in metrics}) for row, _ in rows]


# -- inside -------------------------------------------------------------------------------------------------------


def _experiment(session: Session, experiment_id: int) -> Experiment:
    found = session.get(Experiment, experiment_id)
    if found is None:
        raise NotFound(f"There is no experiment {experiment_id}.")
    return found


def _table(metric: Named) -> tuple[Any, Any]:
    """The partition of a metric, and its value in a row as a number or NULL."""
    if not metric.name:
        raise Invalid("Say which metric, as metricName.")
    table = METRICS_OF[kind_of(metric.group)]
    return table, _number(table, metric.group, metric.name)


def _number(table: Any, group: str, name: str) -> Any:
    key = "validation_metrics" if group == "validation" else "avg_metrics"
    value = func.jsonb_extract_path(table.c.metrics, key, name, type_=JSONB)
    return case((func.jsonb_typeof(value) == "number", cast(value, Double)))


def _points(session: Session, trial_id: int, metric: Named, stretch: Stretch) -> list[Point]:
    table, value = _table(metric)
    m = table.c
    whole = (
        select(m.steps, m.at, value.label("value"), _number(table, metric.group, "epoch").label("epoch"), m.id)
        .where(m.trial_id == trial_id, ~m.archived, m.group == metric.group, value.is_not(None))
        .where(m.steps.between(stretch.first, stretch.last))
    )
    most = min(stretch.points or MOST_POINTS, MOST_POINTS)
    w = whole.subquery().c
    place = func.row_number().over(order_by=(w.steps, w.id)) - 1
    numbered = select(
        w.steps, w.at, w.value, w.epoch, w.id, func.div(place * max(most // 2, 1), func.count().over()).label("part")
    ).subquery()
    n = numbered.c
    ends = select(n.part, func.min(n.value).label("low"), func.max(n.value).label("high")).group_by(n.part).subquery()
    kept = (
        select(n.steps, n.at, n.value, n.epoch, n.id)
        .join(ends, (ends.c.part == n.part) & ((n.value == ends.c.low) | (n.value == ends.c.high)))
        .distinct(n.part, n.value)
        .order_by(n.part, n.value, n.steps)
        .subquery()
    )
    k = kept.c
    rows = session.execute(select(k.steps, k.at, k.value, k.epoch).order_by(k.steps, k.id)).tuples()
    return [Point(*row) for row in rows]
