"""Series of one metric: downsampled for plots, sampled over the trials of a search, cut at one number of steps.

The compacted part of a series is read as columns (`series_columns`). Downsampling keeps the lowest and the highest
point of each section, so that no spike is lost.
"""

from __future__ import annotations

import datetime as dt
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Double, Integer, case, cast, column, func, select
from sqlalchemy.dialects.postgresql import JSONB, distinct_on
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Experiment, Project, Trial
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.metrics import series_columns
from trainmaster.master.services.metrics.metric_reports import MAX_STEPS, kind_of
from trainmaster.master.services.metrics.series_columns import ColumnBlock

DAY_ONE = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
EPOCH = "epoch"  # the metric that holds the epoch of the others in its report
MOST_POINTS = 10_000
MOST_TRIALS = 1000


@dataclass(frozen=True)
class Named:
    """A metric of a group: training, validation, or one of the trial's own."""

    group: str
    name: str


@dataclass(frozen=True)
class SeriesSection:
    """A section of a series; at most `points` points, 0 for all."""

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
class TrialSnapshot:
    trial_id: int
    hparams: Mapping[str, Any]
    value: float
    steps: int


class MetricSeries(BoundService):
    """Series of one metric, sampled and compared."""

    def batches(self, experiment_id: int, metric: Named) -> tuple[list[int], bool]:
        """Return the steps at which any trial of an experiment reported a metric; and whether there may be more. Raises
        NotFound."""
        m, value = _table(metric)
        with self._store.transaction() as session:
            experiment = _experiment(session, experiment_id)
            trials = select(Trial.id).where(Trial.experiment_id == experiment_id)
            query = (
                select(m.c.steps).distinct().where(m.c.trial_id.in_(trials), ~m.c.archived, m.c.group == metric.group)
            )
            steps = session.scalars(query.where(value.is_not(None)).order_by(m.c.steps))
            return list(steps), experiment.end_time is None

    def sample(
        self, experiment_id: int, metric: Named, section: SeriesSection, most_trials: int
    ) -> tuple[list[TrialSeries], bool]:
        """Return the best trials of an experiment with their series; and whether there may be more."""
        with self._store.transaction() as session:
            one_moment(session)
            experiment = _experiment(session, experiment_id)
            measured = Trial.__table__.c.searcher_metric
            order = measured.asc() if experiment.smaller_is_better else measured.desc()
            ranked = select(Trial).where(Trial.experiment_id == experiment_id).order_by(order.nulls_last(), Trial.id)
            rows = list(session.scalars(ranked.limit(min(most_trials or 100, MOST_TRIALS))))
            series = _series(session, [row.id for row in rows], metric, section)
            return [TrialSeries(row, series[row.id]) for row in rows], experiment.end_time is None

    def snapshot(self, experiment_id: int, metric: Named, steps: int, margin: int) -> tuple[list[TrialSnapshot], bool]:
        """Each trial's value at `steps`, or at most `margin` later; and whether there may be more."""
        m, value = _table(metric)
        with self._store.transaction() as session:
            experiment = _experiment(session, experiment_id)
            query = (
                select(Trial.id, Trial.hparams, value, m.c.steps)
                .ext(distinct_on(Trial.id))
                .join(m, m.c.trial_id == Trial.id)
                .where(Trial.experiment_id == experiment_id, ~m.c.archived, m.c.group == metric.group)
                .where(m.c.steps.between(steps, min(steps + margin, MAX_STEPS)), value.is_not(None))
                .order_by(Trial.id, m.c.steps)
            )
            return [TrialSnapshot(*row) for row in session.execute(query)], experiment.end_time is None

    def compare(
        self, caller: Caller, trial_ids: Sequence[int], metrics: Sequence[Named], section: SeriesSection
    ) -> list[tuple[Trial, Mapping[Named, Sequence[Point]]]]:
        """Series of several trials. Raises NotFound, Forbidden, Invalid."""
        if len(trial_ids) > MOST_TRIALS:
            raise Invalid(f"Not more than {MOST_TRIALS} trials are compared at once.")
        query = select(Trial, Project.workspace_id).join(Experiment, Experiment.id == Trial.experiment_id)
        query = (
            query.join(Project, Project.id == Experiment.project_id).where(Trial.id.in_(trial_ids)).order_by(Trial.id)
        )
        with self._store.transaction() as session:
            one_moment(session)
            rows = [(trial, home) for trial, home in session.execute(query)]
            for trial, home in rows:
                caller.check(home, f"There is no trial {trial.id}.")
            if missing := set(trial_ids) - {row.id for row, _ in rows}:
                raise NotFound(f"There is no trial {min(missing)}.")
            ids = [row.id for row, _ in rows]
            by_metric = {metric: _series(session, ids, metric, section) for metric in metrics}
            return [(row, {metric: by_metric[metric][row.id] for metric in metrics}) for row, _ in rows]


# -- inside -------------------------------------------------------------------------------------------------------


def one_moment(session: Session) -> None:
    """All statements of the transaction see one snapshot of the database, so that columns and the reports after them
    belong together."""
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})


def _experiment(session: Session, experiment_id: int) -> Experiment:
    experiment = session.get(Experiment, experiment_id)
    if experiment is None:
        raise NotFound(f"There is no experiment {experiment_id}.")
    return experiment


def _table(metric: Named) -> tuple[Any, Any]:
    """Return the partition of a metric, and its value in a row as a number or NULL."""
    if not metric.name:
        raise Invalid("Name the metric, as metricName.")
    table = METRICS_OF[kind_of(metric.group)]
    return table, _number(table, metric.group, metric.name)


def _number(table: Any, group: str, name: str) -> Any:
    key = "validation_metrics" if group == "validation" else "avg_metrics"
    value = func.jsonb_extract_path(table.c.metrics, key, name, type_=JSONB)
    return case((func.jsonb_typeof(value) == "number", cast(value, Double)))


def blocks(
    session: Session, trial_ids: Sequence[int], metric: Named, beside: str = EPOCH
) -> dict[int, list[ColumnBlock]]:
    """All points of each trial, in the order in which they were reported. `beside`: another metric of the same reports,
    as the blocks' `epoch`. The transaction must see one snapshot of the database. Raises Invalid."""
    upto = series_columns.upto(session, trial_ids)
    latest = _latest(session, trial_ids, metric, upto, beside)
    by_trial: dict[int, list[ColumnBlock]] = {}
    for trial_id in trial_ids:
        pieces = series_columns.pieces(session, trial_id, metric.group, metric.name, beside) if trial_id in upto else []
        by_trial[trial_id] = [*pieces, latest[trial_id]] if trial_id in latest else pieces
    return by_trial


def _series(
    session: Session, trial_ids: Sequence[int], metric: Named, section: SeriesSection
) -> dict[int, list[Point]]:
    """Return the downsampled series of each trial."""
    return {key: _points(pieces, section) for key, pieces in blocks(session, trial_ids, metric).items()}


def _points(pieces: Sequence[ColumnBlock], section: SeriesSection) -> list[Point]:
    """Return the points in the order of the steps, downsampled."""
    collected, values = array("q"), array("d")
    for piece in pieces:
        collected.extend(piece.steps)
        values.extend(piece.values)
    steps = collected.tolist()
    ascending = sorted(steps)
    order: Sequence[int] = range(len(steps))
    if ascending != steps:  # a report was late
        order = sorted(order, key=steps.__getitem__)
        values = array("d", itemgetter(*order)(values))
    first, last = bisect_left(ascending, section.first), bisect_right(ascending, section.last)
    ends = list(accumulate(len(piece.steps) for piece in pieces))
    points = []
    for place in thinned(values[first:last], min(section.points or MOST_POINTS, MOST_POINTS)):
        point = order[first + place]
        number = bisect_right(ends, point)
        piece, inside = pieces[number], point - ends[number]  # from the end of its piece
        at = DAY_ONE + dt.timedelta(microseconds=piece.times[inside])
        points.append(Point(ascending[first + place], at, values[first + place], piece.epoch(inside)))
    return points


def _latest(
    session: Session, trial_ids: Sequence[int], metric: Named, upto: Mapping[int, int], beside: str
) -> dict[int, ColumnBlock]:
    """Read the reports that are not compacted: those with ids above `upto` of their trial."""
    table, value = _table(metric)
    m = table.c
    pairs = func.unnest(
        cast(list(trial_ids), ARRAY(Integer)), cast([upto.get(key, 0) for key in trial_ids], ARRAY(BigInteger))
    )
    wanted = pairs.table_valued(column("trial_id", Integer), column("upto", BigInteger), name="wanted").render_derived()
    micros = cast(func.extract("epoch", m.at) * 1_000_000, BigInteger)
    query = (
        select(m.trial_id, m.steps, micros, value, _number(table, metric.group, beside))
        .join(wanted, (m.trial_id == wanted.c.trial_id) & (m.id > wanted.c.upto))
        .where(~m.archived, m.group == metric.group, value.is_not(None))
        .order_by(m.trial_id, m.id)
    )
    latest: dict[int, ColumnBlock] = {}
    for trial_id, rows in groupby(session.execute(query), key=itemgetter(0)):
        _, steps, times, values, epochs = zip(*rows, strict=True)
        latest[trial_id] = ColumnBlock(steps, times, values, range(len(steps)), epochs)
    return latest


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Return the indices of at most `most` values: of each of half as many equal sections, the first of its lowest and
    the first of its highest."""
    if len(values) <= most:
        return list(range(len(values)))
    parts = max(most // 2, 1)
    kept: list[int] = []
    start = 0
    for part in range(1, parts + 1):
        end = len(values) * part // parts
        section = values[start:end]
        ends = {start + section.index(min(section)), start + section.index(max(section))}
        kept += sorted(ends)
        start = end
    return kept[:most]
