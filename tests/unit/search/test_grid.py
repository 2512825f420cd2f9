"""Grid axes and their product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.search import Create, Search, SearchError, Shutdown
from trainmaster.master.search.hyperparameters import Grid, grid_axis


def typed(kind: str, low: float, high: float, count: int | None, **more: float) -> dict[str, Any]:
    return {"type": kind, "minval": low, "maxval": high, "count": count, **more}


@pytest.mark.parametrize(
    ("hyperparameter", "axis"),
    [
        (typed("int", 0, 4, 5), [0, 1, 2, 3, 4]),
        (typed("int", 0, 4, 100), [0, 1, 2, 3, 4]),
        (typed("int", -4, -2, 3), [-4, -3, -2]),
        (typed("int", 0, 5, 3), [0, 3, 5]),  # 2.5 away from zero
        (typed("int", -5, 0, 3), [-5, -3, 0]),
        (typed("int", 0, 5, 1), [3]),
        (typed("double", 0, 1, 3), [0.0, 0.5, 1.0]),
        (typed("double", 2, 4, 1), [3.0]),
        (typed("log", -3, -1, 3, base=10), [0.001, 0.01, 0.1]),
        (typed("log", 0, 4, 1, base=2), [4.0]),
        ({"type": "categorical", "vals": ["a", None, [1]]}, ["a", None, [1]]),
        ({"type": "const", "val": {"k": 1}}, [{"k": 1}]),
        ([1, 2], [[1, 2]]),
    ],
)
def test_golden_axes(hyperparameter: Any, axis: list[Any]) -> None:
    assert grid_axis(hyperparameter) == axis


@given(st.integers(-1000, 1000), st.integers(1, 2000), st.integers(2, 50))
def test_int_axes_are_spread_evenly_and_never_repeat(low: int, span: int, count: int) -> None:
    axis = grid_axis(typed("int", low, low + span, count))
    assert len(axis) == min(count, span + 1) == len(set(axis))
    assert axis == sorted(axis)
    assert (axis[0], axis[-1]) == (low, low + span)
    assert np.allclose(axis, np.linspace(low, low + span, len(axis)), atol=0.5)


@pytest.mark.parametrize("kind", ["int", "double", "log"])
@pytest.mark.parametrize("count", [None, 0])
def test_a_grid_needs_counts(kind: str, count: int | None) -> None:
    with pytest.raises(SearchError, match=r"hyperparameter a\.b: a grid search needs a count"):
        Grid({"a": {"b": typed(kind, 1, 2, count, base=10)}})


def test_the_last_name_changes_fastest_and_empty_groups_stay() -> None:
    grid = Grid(
        {
            "b": {"type": "categorical", "vals": [1, 2]},
            "a": {"y": {"type": "categorical", "vals": "pq"}, "e": {}},
        }
    )
    assert [grid.point(i) for i in range(grid.size)] == [{"a": {"e": {}, "y": y}, "b": b} for y in "pq" for b in (1, 2)]


def test_the_search_takes_the_last_point_first() -> None:
    space = {"a": {"type": "categorical", "vals": [1, 2, 3]}}
    search, actions = Search.start({"name": "grid", "metric": "m", "max_concurrent_trials": 1}, space, 5)
    seen = []
    while actions and isinstance(actions[0], Create):
        seen.append(actions[0].hparams["a"])
        actions = search.exited(actions[0].request_id)
    assert seen == [3, 2, 1]
    assert isinstance(actions[0], Shutdown)


def test_a_grid_without_hyperparameters_is_one_trial() -> None:
    _, actions = Search.start({"name": "grid", "metric": "m"}, {}, 1)
    assert [action.hparams for action in actions if isinstance(action, Create)] == [{}]
    assert len(actions) == 1


def test_huge_grid_creates_points_only_on_request() -> None:
    space = {f"h{i}": {"type": "int", "minval": 1, "maxval": 100, "count": 100} for i in range(20)}
    grid = Grid(space)
    assert grid.size == 100**20
    assert grid.point(grid.size - 1) == dict.fromkeys(sorted(space), 100)
