"""Determined 0.38's own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.master.search import Create, Search, SearchError, Shutdown, StopTrial, simulate
from trainmaster.master.search.adaptive_asha import (
    Bracket,
    bracket_concurrency,
    bracket_trials,
    make_brackets,
)
from trainmaster.master.search.async_halving import rung_units

SPACE = {"x": {"type": "double", "minval": 0, "maxval": 1}}


def asha(**more: Any) -> dict[str, Any]:
    return {"name": "async_halving", "metric": "loss", "time_metric": "epochs", "divisor": 3, **more}


def adaptive(**more: Any) -> dict[str, Any]:
    return {"name": "adaptive_asha", "metric": "loss", "time_metric": "epochs", **more}


@pytest.mark.parametrize(
    ("trials", "divisor", "rungs", "expected"),
    [
        (20, 3, [3, 2, 1], [12, 5, 3]),
        (50, 3, [4, 3], [35, 15]),
        (50, 4, [3, 2], [37, 13]),
        (100, 4, [4, 3, 2], [70, 22, 8]),
        (2, 4, [4, 3, 2], [1, 1]),  # never more than max_trials
        (4, 4, [10, 2, 1, 1], [1, 1, 1, 1]),
    ],
)
def test_trials_per_bracket(trials: int, divisor: float, rungs: list[int], expected: list[int]) -> None:
    assert bracket_trials(trials, divisor, rungs) == expected


@pytest.mark.parametrize(
    ("concurrent", "divisor", "trials", "expected"),
    [(0, 3, [9, 3, 1], [3, 3, 3]), (11, 3, [9, 3, 1], [4, 4, 3]), (0, 4, [40, 10], [10, 10])],
)
def test_concurrency_per_bracket(concurrent: int, divisor: float, trials: list[int], expected: list[int]) -> None:
    assert bracket_concurrency(concurrent, divisor, trials) == expected


def test_brackets_of_an_adaptive_search() -> None:
    assert make_brackets("standard", 100, 4, 10, 2, 5) == [Bracket(2, 7, 1), Bracket(1, 3, 1)]
    assert make_brackets("conservative", 1000, 3, 10, 5, 5) == [
        Bracket(3, 7, 2),
        Bracket(2, 2, 2),
        Bracket(1, 1, 1),
    ]
    assert [b.rungs for b in make_brackets("aggressive", 1000, 3, 10, 5, 5)] == [3]
    assert [b.rungs for b in make_brackets("standard", 10, 3, 10, 5, 5, [2, 6])] == [6, 2]


@pytest.mark.parametrize(
    ("rungs", "divisor", "time", "units"),
    [
        (3, 3, 9, [1, 3, 9]),
        (4, 2, 10, [1, 2, 5, 10]),
        (1, 3, 9, [9]),
        (3, 3, 900, [100, 300, 900]),
        (4, 4, 2, [1, 1, 1, 2]),
    ],
)
def test_rung_units(rungs: int, divisor: float, time: int, units: list[int]) -> None:
    assert rung_units(rungs, divisor, time) == units


def run(searcher: dict[str, Any], metric: Callable[[int], float], step: int) -> list[tuple[int, int]]:
    """Trials train one after another until they are stopped; returns (trial, time it was stopped at)."""
    search, actions = Search.start(searcher, SPACE, 102932948)
    queue = [a.request_id for a in actions if isinstance(a, Create)]
    order: list[str] = list(queue)
    stops: list[tuple[int, int]] = []
    while queue:
        trial = queue.pop(0)
        for time in range(step, searcher["max_time"] + 1, step):
            actions = search.validation(trial, {"loss": metric(order.index(trial)), "epochs": time}, time)
            created = [a.request_id for a in actions if isinstance(a, Create)]
            queue += created
            order += created
            if any(isinstance(a, StopTrial) for a in actions):
                stops.append((order.index(trial), time))
                break
        last = search.exited(trial)
    assert [type(a) for a in last] == [Shutdown]
    return stops


def test_asha_with_a_worsening_metric_stops_all_but_the_first() -> None:
    searcher = asha(num_rungs=3, max_time=900, max_concurrent_trials=3, max_trials=10)
    assert Counter(time for _, time in run(searcher, float, 100)) == {900: 1, 100: 9}


def test_asha_with_an_improving_metric_lets_every_trial_finish() -> None:
    searcher = asha(num_rungs=3, max_time=900, max_concurrent_trials=3, max_trials=10)
    assert Counter(time for _, time in run(searcher, lambda trial: -trial, 100)) == {900: 10}
    assert Counter(time for _, time in run({**searcher, "smaller_is_better": False}, float, 100)) == {900: 10}


def test_an_adaptive_search_runs_its_brackets() -> None:
    searcher = adaptive(max_trials=9, max_concurrent_trials=3, max_time=90, divisor=3, max_rungs=5, mode="standard")
    assert Counter(time for _, time in run(searcher, float, 10)) == {10: 5, 90: 1 + 1, 30: 2}


SIMULATIONS: list[tuple[dict[str, Any], dict[str, Any], list[tuple[int, int | None]]]] = [
    (
        adaptive(max_trials=10, max_concurrent_trials=5, divisor=3, max_time=900, max_rungs=10, mode="standard"),
        SPACE,
        [(5, 100), (3, 300), (2, 900)],
    ),
    (asha(num_rungs=3, max_trials=9, max_time=900), SPACE, [(6, 100), (2, 300), (1, 900)]),
    (asha(num_rungs=3, max_trials=1, max_time=900), SPACE, [(1, 900)]),
    (
        {"name": "grid", "metric": "m"},
        {k: {"type": "categorical", "vals": [1, 2]} for k in "ab"},
        [(4, None)],
    ),
    ({"name": "random", "metric": "m", "max_trials": 7}, SPACE, [(7, None)]),
    ({"name": "single", "metric": "m"}, SPACE, [(1, None)]),
]


@pytest.mark.parametrize(("searcher", "space", "expected"), SIMULATIONS)
def test_preview(searcher: dict[str, Any], space: dict[str, Any], expected: list[tuple[int, int | None]]) -> None:
    assert simulate(searcher, space) == expected


@pytest.mark.parametrize(
    ("searcher", "message"),
    [
        (
            {"name": "tpe", "metric": "m", "max_trials": 3, "rule": {"name": "pbt"}},
            "searcher.rule.name must be one of random",
        ),
        (
            {"name": "tpe", "metric": "m", "max_trials": 3, "rule": {"name": "asha", "metric": "loss"}},
            "searcher.rule.metric belongs one level up: write searcher.metric",
        ),
        (
            {"name": "tpe", "metric": "m", "max_trials": 3, "rule": {"name": "asha", "max_time": 9}},
            "searcher.rule.time_metric is required for asha",
        ),
        (
            {
                "name": "tpe",
                "metric": "m",
                "max_trials": 3,
                "rule": {"name": "async_halving", "max_time": 9, "time_metric": "e", "num_rungs": 10**9},
            },
            "searcher.rule: a bracket may have 100 rungs",
        ),
        ({"name": "adaptive"}, "the searcher adaptive is no longer run; use adaptive_asha"),
        ({"name": "adaptive_simple"}, "use adaptive_asha"),
        ({"name": "sync_halving"}, "use async_halving"),
        ({"name": "bayes"}, "there is no searcher 'bayes'; one of adaptive_asha, asha, async_halving, auto, custom"),
        ({}, "searcher.name is required; one of adaptive_asha"),
        (
            {"name": "random"},
            "searcher.max_trials is required for random: how many trials there are in all",
        ),
        (adaptive(max_trials=1), "searcher.max_time is required for adaptive_asha"),
        (asha(num_rungs=1, max_trials=1, max_time=True), "searcher.max_time"),
        (
            asha(num_rungs=1, max_trials=1, max_time=1) | {"time_metric": None},
            "searcher.time_metric is required for async_halving",
        ),
        (
            asha(num_rungs=1, max_trials=1, max_time=1) | {"divisor": 1},
            "searcher.divisor must be above 1, found 1",
        ),
        (adaptive(max_trials=1, max_time=1, mode="eager"), "searcher.mode must be one of aggressive"),
        (adaptive(max_trials=1, max_time=1, bracket_rungs=[0]), "searcher.bracket_rungs"),
    ],
)
def test_error_says_why_search_cannot_run(searcher: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        Search.start(searcher, SPACE, 0)
    with pytest.raises(SearchError, match=message):
        simulate(searcher, SPACE)
