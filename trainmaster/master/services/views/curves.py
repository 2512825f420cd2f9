"""Curves of many trials over one grid, as a chart draws them: one axis for all, a row of values for each trial.

A grid has the places themselves where they are few, else cells of equal width, each with the last value in it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Experiment, Trial
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.metric_reports import kind_of
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.metrics.series_columns import ColumnBlock
from trainmaster.master.services.views import search_pauses

BATCHES, SECONDS = "batches", "seconds"
DIGITS = 6  # significant ones of a value: more than a screen shows
EARLY = 0.5  # seconds by which a decision may seem to come before the report that led to it
OVERLAP = 1000  # ids of reports: what draws its id earlier may become visible later


@dataclass(frozen=True)
class CurveGrid:
    """`y`: a row for each of `trials`, a value or None for each of `x` up to its last value. `last`: where each series
    ends. `pauses`: the places where the search paused each. `seq`: of the newest report that is in it, or a little
    less: later calls ask for what came since."""

    metric: Named
    x_name: str
    x: Sequence[float]
    trials: Sequence[int]
    y: Sequence[Sequence[float | None]]
    last: Sequence[float | None]
    pauses: Sequence[Sequence[float]]
    whole: bool
    seq: int


class Curves(BoundService):
    """Curves of an experiment's trials over one axis."""

    def of_experiment(
        self, experiment_id: int, metric: Named | None, x_name: str, points: int, since: int = 0
    ) -> CurveGrid:
        """Return the curves of all trials of an experiment; with `since` only those that have reported more.

        Args:
            metric: None: the searcher's.
            x_name: BATCHES, SECONDS since each trial's start, or a metric of the same reports, such as epochs.
            points: Places of the grid, at most.

        Raises:
            NotFound: There is no such experiment.
            Invalid: The metric has no name.
        """
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            return read(session, row, metric, x_name, points, since)


def read(
    session: Session, row: Experiment, metric: Named | None, x_name: str, points: int, since: int = 0
) -> CurveGrid:
    """Return the same, in a transaction that sees one snapshot of the database."""
    wanted = metric or Named("validation", row.searcher_metric)
    m = METRICS_OF[kind_of(wanted.group)].c
    newest = int(session.scalar(select(func.max(m.id))) or 0)
    trials = select(Trial.id, Trial.start_time).where(Trial.experiment_id == row.id).order_by(Trial.id)
    if since:
        trials = trials.where(Trial.id.in_(select(m.trial_id).where(m.id > since).distinct()))
    starts = {key: epoch(start) for key, start in session.execute(trials)}
    blocks = _blocks(session, starts, wanted, x_name)
    courses = {key: course for key, start in starts.items() if (course := _ascending(blocks[key], x_name, start))}
    x, y, last = on_grid(list(courses.values()), points)
    pauses = search_pauses.read(session, row.id, list(courses) if since else None)
    places = [
        [_place_at(blocks[key], x_name, starts[key], pause.at) for pause in pauses.get(key, ())] for key in courses
    ]
    shown = [[_rounded(place) for place in each if place is not None] for each in places]
    return CurveGrid(wanted, x_name or BATCHES, x, list(courses), y, last, shown, not since, max(newest - OVERLAP, 0))


Course = list[tuple[float, float]]
"""Places and values of a trial, the places ascending."""


def of_trial(
    session: Session, trial: Trial, metric: Named, x_name: str, points: int
) -> tuple[list[float], list[float]]:
    """Places and values of a trial's metric, thinned so that no spike is lost."""
    course = _courses(session, {trial.id: epoch(trial.start_time)}, metric, x_name)[trial.id]
    kept = series.thinned([value for _, value in course], points)
    return [course[at][0] for at in kept], [_rounded(course[at][1]) for at in kept]


def of_trials(session: Session, starts: Mapping[int, float], metric: Named, x_name: str) -> dict[int, Course]:
    """All points of a metric of some trials, in a transaction that sees one snapshot of the database.

    Args:
        starts: When each trial began, by its id, in seconds since 1970.
        x_name: As for `of_experiment`.
    """
    return _courses(session, starts, metric, x_name)


def on_grid(courses: Sequence[Course], points: int) -> tuple[list[float], list[list[float | None]], list[float | None]]:
    """Return the grid, the values on it, and the ends of the courses."""
    places = sorted({place for course in courses for place, _ in course})
    if len(places) > points:
        low, high = places[0], places[-1]
        width = (high - low) / points
        # A cell is named by its upper edge: its value is the last one up to there.
        places = [low + width * (at + 1) for at in range(points - 1)] + [high]
    rows: list[list[float | None]] = []
    for course in courses:
        row: list[float | None] = [None] * len(places)
        for place, value in course:
            row[min(bisect_left(places, place), len(places) - 1)] = _rounded(value)
        while row and row[-1] is None:  # most trials of a search end early
            row.pop()
        rows.append(row)
    return [_rounded(place) for place in places], rows, [course[-1][0] if course else None for course in courses]


def _courses(session: Session, starts: Mapping[int, float], metric: Named, x_name: str) -> dict[int, Course]:
    blocks = _blocks(session, starts, metric, x_name)
    return {key: _ascending(blocks[key], x_name, start) for key, start in starts.items()}


def _blocks(
    session: Session, starts: Mapping[int, float], metric: Named, x_name: str
) -> Mapping[int, Sequence[ColumnBlock]]:
    beside = x_name if x_name not in ("", BATCHES, SECONDS) else series.EPOCH
    return series.blocks(session, list(starts), metric, beside)


def _place_at(pieces: Sequence[ColumnBlock], x_name: str, start: float, moment: float) -> float | None:
    """Return where a trial was at a moment: at its last report by then."""
    before = [place for at, place, _ in _reports(pieces, x_name, start) if at <= moment + EARLY]
    return max(before, default=None)


def _reports(pieces: Sequence[ColumnBlock], x_name: str, start: float) -> Iterator[tuple[float, float, float]]:
    """Yield the time, the place and the value of each report that has both."""
    for piece in pieces:
        for at, value in enumerate(piece.values):
            if not math.isfinite(value):
                continue
            moment = piece.times[at] / 1e6
            if x_name in ("", BATCHES):
                yield moment, float(piece.steps[at]), value
            elif x_name == SECONDS:
                yield moment, round(moment - start, 3), value
            elif (place := piece.epoch(at)) is not None and math.isfinite(place):
                yield moment, place, value


def _ascending(pieces: Sequence[ColumnBlock], x_name: str, start: float) -> Course:
    course = [(place, value) for _, place, value in _reports(pieces, x_name, start)]
    if any(after[0] < before[0] for before, after in pairwise(course)):
        course.sort(key=lambda point: point[0])
    return course


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
