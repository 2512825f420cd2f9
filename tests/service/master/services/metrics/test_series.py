"""Series read as columns are what the reports say, whatever happened to these and whenever they were compacted."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from tests.support.attempts import Attempts, waits
from tests.support.bound import bind
from tests.support.master import wait_for
from trainmaster.master.controller import compactor
from trainmaster.master.db.compacted import series_progress, series_steps, series_values
from trainmaster.master.db.tables import Trial, metrics
from trainmaster.master.services import compaction
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.ingest.metrics import store_reports
from trainmaster.master.services.master import Master
from trainmaster.master.services.metrics import series_columns
from trainmaster.master.services.metrics.metric_reports import MetricReport, number
from trainmaster.master.services.metrics.series import Named, Point, SeriesSection, thinned
from trainmaster.master.services.metrics.series_columns import SOURCE
from trainmaster.master.services.removal.removal import ExperimentRemoval
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import Store

CALLER = Caller(1, "admin", admin=True)
GROUPS = ("training", "validation", "mine")
LOSS = [Named(group, "loss") for group in GROUPS]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def trial(attempts: Attempts) -> int:
    return attempts.row(attempts.attempt()).trial_id or 0


def report(master: Master, trial_id: int, run: int, reports: Sequence[MetricReport]) -> None:
    with master.store.transaction() as session:
        trial = session.get_one(Trial, trial_id, with_for_update=True)
        store_reports(session, trial, run, reports, "loss", True)


def compact(master: Master, trial_id: int) -> None:
    master.compaction.count(SOURCE, master.compaction.newest(SOURCE))
    while master.series_columns.compact(trial_id):
        pass


def upto(master: Master, trial_id: int) -> int:
    with master.store.transaction() as session:
        return series_columns.upto(session, [trial_id]).get(trial_id, 0)


def read(master: Master, trial_id: int, section: SeriesSection | None = None) -> dict[Named, list[Point]]:
    ((_, found),) = master.series.compare(CALLER, [trial_id], LOSS, section or SeriesSection())
    return {metric: list(points) for metric, points in found.items()}


def told(master: Master, trial_id: int) -> dict[Named, list[Point]]:
    """The same from the reports, one by one."""
    m = metrics.c
    query = select(metrics).where(m.trial_id == trial_id, ~m.archived).order_by(m.steps, m.id)
    found: dict[Named, list[Point]] = {metric: [] for metric in LOSS}
    with master.store.transaction() as session:
        for row in session.execute(query).mappings():
            values = row["metrics"]["validation_metrics" if row["group"] == "validation" else "avg_metrics"]
            value = _finite(values.get("loss"))
            if value is not None:
                point = Point(row["steps"], row["at"], value, _finite(values.get("epoch")))
                found[Named(row["group"], "loss")].append(point)
    return found


def _finite(value: Any) -> float | None:
    measured = None if isinstance(value, str) else number(value)
    return measured if measured is not None and math.isfinite(measured) else None


# -- whatever happens ---------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.floats(-1e290, 1e290),  # sums of them are kept too
    st.integers(-(2**60), 2**60),
    st.sampled_from(["NaN", "Infinity", "words", True, None, 10**290]),
)
NUMBERS = st.one_of(st.integers(0, 9), st.floats(0, 9))
MEASURED = st.one_of(
    st.fixed_dictionaries({"loss": VALUES}, optional={"other": VALUES, "epoch": NUMBERS}),
    st.fixed_dictionaries({"other": VALUES}, optional={"epoch": NUMBERS}),
)
REPORTS = st.lists(
    st.builds(
        MetricReport,
        group=st.sampled_from(GROUPS),
        steps=st.one_of(st.integers(1, 40), st.integers(2**31 - 2, 2**31 + 2), st.just(2**63 - 1)),
        metrics=MEASURED,
        batch_metrics=st.none(),
        at=st.integers(0, 10**9).map(lambda micros: START + dt.timedelta(microseconds=micros)),
    ),
    min_size=1,
    max_size=12,
)
# Reports of the run that is under way or of the one that follows it, or None: what there is is compacted.
MOMENTS = st.lists(st.one_of(st.tuples(st.booleans(), REPORTS), st.none()), min_size=2, max_size=8)


@settings(max_examples=25, deadline=None)
@given(moments=MOMENTS)
def test_series_equals_its_reports_at_any_moment(
    attempts: Attempts, moments: list[tuple[bool, list[MetricReport]] | None]
) -> None:
    """Late reports, merged ones, those of a run that went back: at any moment."""
    master, run = attempts.master, 1
    trial_id = attempts.row(attempts.attempt()).trial_id or 0
    for moment in moments:
        if moment is None:
            compact(master, trial_id)
            assert upto(master, trial_id) > 0 or not any(told(master, trial_id).values())
        else:
            run += moment[0]
            report(master, trial_id, run, moment[1])
        assert read(master, trial_id) == told(master, trial_id)
    compact(master, trial_id)
    everything = told(master, trial_id)
    assert read(master, trial_id) == everything
    part = read(master, trial_id, SeriesSection(first=10, last=20))
    assert part == {key: [p for p in points if 10 <= p.steps <= 20] for key, points in everything.items()}


@given(values=st.lists(st.floats(allow_nan=False, width=16), max_size=200), most=st.integers(1, 60))
def test_thinning_keeps_the_ends_of_each_stretch(values: list[float], most: int) -> None:
    kept = thinned(values, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    if len(values) <= most:
        assert kept == list(range(len(values)))
    elif most > 1:
        assert {min(values), max(values)} <= {values[place] for place in kept}


# -- at the same moment -------------------------------------------------------------------------------------------


def training(steps: int, **measured: float) -> MetricReport:
    return MetricReport("training", steps, measured, None, START)


class Interrupted(Store):
    """Something happens between the last that is read and what is written: once the reports have been read, which comes
    after how far they have been counted."""

    def __init__(self, store: Store, interruption: Callable[[], None]) -> None:
        super().__init__(store.engine)
        self._interruption = interruption
        self._readings = 0

    @contextmanager
    def autocommit(self) -> Iterator[Session]:
        with super().autocommit() as session:
            yield session
        self._readings += 1
        if self._readings == 2:
            self._interruption()


@pytest.mark.parametrize(
    "change",
    [
        lambda master, trial: report(master, trial, 1, [training(5, more=1.0)]),  # merged with what there is
        lambda master, trial: report(master, trial, 2, [training(3, loss=-1.0)]),  # the rest is put aside
    ],
    ids=["merged", "put aside"],
)
@pytest.mark.parametrize("compacted", [False, True], ids=["new", "compacted"])
def test_reports_that_change_while_they_are_condensed(
    attempts: Attempts, trial: int, change: Callable[[Master, int], None], compacted: bool
) -> None:
    master = attempts.master
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, 10)])
    if compacted:
        compact(master, trial)
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(10, 20)])
    master.compaction.count(SOURCE, master.compaction.newest(SOURCE))
    before = upto(master, trial)
    interrupted = bind(Interrupted(master.store, lambda: change(master, trial)))
    assert not interrupted.series_columns.compact(trial)
    assert upto(master, trial) <= before
    assert read(master, trial) == told(master, trial)
    compact(master, trial)
    assert read(master, trial) == told(master, trial)
    assert upto(master, trial) > 0


def test_a_change_that_is_under_way_is_waited_for(attempts: Attempts, trial: int) -> None:
    master = attempts.master
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, 10)])
    master.compaction.count(SOURCE, master.compaction.newest(SOURCE))
    thread = threading.Thread(target=master.series_columns.compact, args=(trial,))
    with master.store.transaction() as session:
        session.execute(update(metrics).where(metrics.c.trial_id == trial).values(archived=True))
        thread.start()
        wait_for(lambda: waits(master.store), "who compacts to wait")
    thread.join()
    assert read(master, trial) == told(master, trial) == {metric: [] for metric in LOSS}


@pytest.mark.parametrize("compacted", [False, True], ids=["new", "compacted"])
@pytest.mark.parametrize("most", [series_columns.MOST, 5], ids=["at once", "in parts"])
def test_a_report_that_becomes_visible_late_is_not_lost(
    attempts: Attempts, trial: int, compacted: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drew its id before reports of others which have been counted."""
    master = attempts.master
    other = attempts.row(attempts.attempt()).trial_id or 0
    monkeypatch.setattr(series_columns, "MOST", most)
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, 20)])
    if compacted:
        compact(master, trial)
    with master.store.transaction() as session:
        row = session.get_one(Trial, trial, with_for_update=True)
        store_reports(session, row, 1, [training(n, loss=n / 2) for n in range(20, 40)], "loss", True)
        report(master, other, 1, [training(n, loss=0.0) for n in range(1, 40)])
        compact(master, trial)
        assert len(read(master, trial)[LOSS[0]]) == 19
    assert len(read(master, trial)[LOSS[0]]) == 39
    compact(master, trial)
    assert read(master, trial) == told(master, trial)


def test_columns_go_with_their_trial(attempts: Attempts, trial: int) -> None:
    master = attempts.master
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, 10)])
    compact(master, trial)
    with master.store.transaction() as session:
        row = session.get_one(Trial, trial)
        session.execute(text("UPDATE experiments SET state = 'DELETING' WHERE id = :id"), {"id": row.experiment_id})
    ExperimentRemoval(master, Retries()).go_on()
    with master.store.transaction() as session:
        for table in (series_progress, series_steps, series_values):
            assert session.execute(select(table).where(table.c.trial_id == trial)).all() == []


def test_many_reports_are_condensed_in_parts(attempts: Attempts, trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    master = attempts.master
    monkeypatch.setattr(series_columns, "MOST", 10)
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, 200)])
    compact(master, trial)
    with master.store.transaction() as session:
        parts = session.scalars(select(series_steps.c.reports).where(series_steps.c.trial_id == trial)).all()
    assert sum(parts) == 199
    assert len(parts) > 2
    assert read(master, trial) == told(master, trial)


def test_compactor_compacts_settled_reports(attempts: Attempts, trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "PERIOD", 0.05)
    master = attempts.master
    report(master, trial, 1, [training(n, loss=n / 2) for n in range(1, compaction.ENOUGH + 100)])
    loop = compactor.Compactor(master)
    loop.start()
    try:
        wait_for(lambda: upto(master, trial) > 0, "a trial that is compacted")
    finally:
        began = time.monotonic()
        loop.stop()
    assert time.monotonic() - began < 30
    assert read(master, trial) == told(master, trial)
