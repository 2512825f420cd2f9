"""Searches with slot-hours and deadlines: what is begun, what is left, and what the user is told."""

from __future__ import annotations

import datetime as dt
import random
import time
from typing import Any

import pytest

from trainmaster.config.deadlines import read_deadline
from trainmaster.master.search import Search, Warn
from trainmaster.master.search.budgeted import BudgetedAsha
from trainmaster.master.search.simulation import RecordedCurves, SimulatedCluster, Simulation, SimulationResult
from trainmaster.master.search.spending import Spending

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
STREAM = random.Random(4)
POINTS = [{"x": STREAM.random()} for _ in range(300)]
CURVES = RecordedCurves(POINTS, [[point["x"] + 1 / unit for unit in range(1, 28)] for point in POINTS], [10.0] * 300)
AUTO: dict[str, Any] = {
    "name": "auto", "metric": "loss", "time_metric": "epochs", "max_time": 27, "max_concurrent_trials": 4,
}  # fmt: skip
FULL = 270.0  # slot-seconds of a whole trial


def run(wait: float = 0.0, **budget: Any) -> tuple[SimulationResult, BudgetedAsha]:
    cluster = SimulatedCluster(places=4, delay=lambda _: wait)
    simulation = Simulation.of({**AUTO, **budget}, SPACE, CURVES, cluster, seed=1)
    result = simulation.run()
    assert isinstance(simulation.search, Search)
    assert isinstance(simulation.search.method, BudgetedAsha)
    return result, simulation.search.method


@pytest.mark.parametrize("full_trials", [2, 5, 20])
def test_slot_hours_are_used_and_not_exceeded(full_trials: int) -> None:
    result, _ = run(slot_hours=full_trials * FULL / 3600)
    assert result.done
    assert 0.8 * full_trials * FULL <= result.slot_seconds <= full_trials * FULL
    assert max(result.trained) == 27, "the best trial is trained to its end"
    assert len(result.trained) > full_trials


def test_too_few_slot_hours_are_said_and_train_as_far_as_they_reach() -> None:
    result, method = run(slot_hours=0.5 * FULL / 3600)
    assert result.slot_seconds <= 0.5 * FULL
    assert max(result.trained) < 27
    assert method.spending is not None
    assert method.spending.shortfall(27, "epochs") == (
        "searcher.slot_hours is 0.0375, and a trial of 27 epochs takes about 0.075: none is trained to its end; 0.0375 "
        "suffice for 13 epochs"
    )


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_deadline_is_kept(wait: float) -> None:
    result, method = run(wait, deadline="1970-01-01T01:00:00+00:00")
    assert 1800 < result.end <= 3600
    assert max(result.trained) == 27
    assert method.spending is not None
    assert method.spending.expected_wait == pytest.approx(wait, abs=1)
    assert method.spending.pace == pytest.approx(10.0)


def test_both_limits_and_a_number_of_trials() -> None:
    assert len(run(max_trials=6, slot_hours=100)[0].trained) == 6
    result, _ = run(slot_hours=3 * FULL / 3600, deadline="1970-01-02T00:00:00+00:00")
    assert result.slot_seconds <= 3 * FULL


def test_user_is_told_once() -> None:
    search, actions = Search.start({**AUTO, "deadline": "1970-01-01T00:01:00+00:00"}, SPACE, seed=1)
    warnings = []
    for step in (1, 2):
        for place, action in enumerate(actions):
            at = 10.0 * step + place / 100
            told = search.validation(action.request_id, {"loss": 1.0, "epochs": step}, step, slot_seconds=at, at=at)  # type: ignore[union-attr]
            warnings += [each.why for each in told if isinstance(each, Warn)]
    assert len(warnings) == 1
    assert warnings[0].startswith("searcher.deadline cannot be met: a trial of 27 epochs takes about 0.0751 hours, of")


def test_forecast() -> None:
    spending = Spending(slot_seconds=1000.0, deadline=None)
    assert spending.forecast(4, None, 4, 10.0, 2.0).trials is None
    spending.grant(0, 0, 10)
    for unit in (1, 2):
        spending.now = 50.0 + 10 * unit
        spending.report(0, unit, 20.0 * unit)
    assert (spending.cost, spending.pace, spending.expected_wait) == (20.0, 10.0, 50.0)
    assert spending.committed() == 160.0
    spending.spent = 40.0
    forecast = spending.forecast(created=1, most=None, at_once=4, units=10.0, legs=2.0)
    assert forecast.trials == 1 + (1000 - 40 - 160) // 200
    assert forecast.slot_seconds == 1000.0
    assert forecast.end == 70.0 + 4 * 200.0 / 4 + 80.0


NOW = dt.datetime(2026, 11, 25, 14, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))  # a Wednesday


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("36h", "2026-11-27T02:30:00+01:00"),
        ("90m", "2026-11-25T16:00:00+01:00"),
        ("18:30", "2026-11-25T18:30:00+01:00"),
        ("9:05", "2026-11-26T09:05:00+01:00"),
        ("Fri 12:00", "2026-11-27T12:00:00+01:00"),
        ("wednesday 14:00", "2026-12-02T14:00:00+01:00"),
        ("2026-12-01 12:00", "2026-12-01T12:00:00+01:00"),
        ("2026-12-01T12:00:00Z", "2026-12-01T12:00:00+00:00"),
    ],
)
def test_deadlines_as_people_write_them(text: str, moment: str) -> None:
    assert read_deadline(text, NOW).isoformat() == moment


@pytest.mark.parametrize("text", ["", "soon", "foo 12:00", "25:00", "12", "-3h", "99999999h"])
def test_what_is_no_deadline(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        read_deadline(text, NOW)


def test_deadline_beyond_a_change_of_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = dt.datetime(2026, 10, 22, 9, 0).astimezone()  # a Thursday; clocks go back on Sunday
        assert read_deadline("Mon 12:00", now).isoformat() == "2026-10-26T12:00:00+01:00"
        assert read_deadline("2026-10-26 12:00", now).isoformat() == "2026-10-26T12:00:00+01:00"
        assert read_deadline("96h", now) - now == dt.timedelta(hours=96)
    finally:
        monkeypatch.undo()
        time.tzset()
