"""Sobol points: the sequence by value, and what scrambling keeps."""

from __future__ import annotations

import pytest

from trainmaster.master.search import Create, Search, SearchError
from trainmaster.master.search.sobol import MOST_DIMENSIONS, _digits, sobol_point


def test_sequence_by_value() -> None:
    """As Joe and Kuo's generator prints it, whose order is that of Gray codes."""
    points = [[_digits(n ^ (n >> 1), dimension) / 2**32 for dimension in range(4)] for n in range(5)]
    assert points == [
        [0, 0, 0, 0],
        [0.5, 0.5, 0.5, 0.5],
        [0.75, 0.25, 0.25, 0.25],
        [0.25, 0.75, 0.75, 0.75],
        [0.375, 0.375, 0.625, 0.875],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_scrambled_points_fill_each_dimension_and_each_pair_evenly(seed: int) -> None:
    seeds = [seed * 1000 + dimension for dimension in range(MOST_DIMENSIONS)]
    points = [sobol_point(number, seeds) for number in range(256)]
    for dimension in range(MOST_DIMENSIONS):
        assert sorted(int(point[dimension] * 256) for point in points) == list(range(256))
    assert sorted(int(point[0] * 16) * 16 + int(point[1] * 16) for point in points) == list(range(256))
    assert points[0] != sobol_point(0, [*seeds[:-1], 7])


def test_random_search_takes_sobol_points() -> None:
    space = {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
        "act": {"type": "categorical", "vals": ["a", "b", "c", "d"]},
        "depth": 3,
    }
    searcher = {
        "name": "random", "sampling": "sobol", "metric": "loss", "max_trials": 16, "max_concurrent_trials": 16,
        "first_points": [{"lr": 0.5}], "forbidden": [{"act": "d"}],
    }  # fmt: skip
    _, actions = Search.start(searcher, space, seed=3)
    points = [action.hparams for action in actions if isinstance(action, Create)]
    assert points[0]["lr"] == 0.5
    assert {point["act"] for point in points} == {"a", "b", "c"}
    assert {point["depth"] for point in points} == {3}
    searcher["forbidden"] = []
    _, actions = Search.start(searcher, space, seed=3)
    acts = [action.hparams["act"] for action in actions if isinstance(action, Create)]
    assert sorted(acts) == [*"aaaabbbbccccdddd"]


def test_too_many_dimensions() -> None:
    space = {f"x{n}": {"type": "double", "minval": 0, "maxval": 1} for n in range(MOST_DIMENSIONS + 1)}
    with pytest.raises(SearchError, match="sobol has 64 dimensions at most; use random"):
        Search.start({"name": "random", "sampling": "sobol", "metric": "m", "max_trials": 1}, space, seed=1)
