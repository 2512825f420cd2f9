"""Whatever happens to the trials, in whatever order, a search keeps its promises."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.master.search import Create, Search, StopTrial
from trainmaster.master.search.conformance import Life

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0, "count": 3},
    "net": {
        "width": {"type": "int", "minval": 1, "maxval": 9, "count": 2},
        "act": {"type": "categorical", "vals": ["a", "b"]},
    },
}
GRID_SIZE = 12

halving = st.fixed_dictionaries(
    {
        "metric": st.just("loss"),
        "time_metric": st.just("epochs"),
        "smaller_is_better": st.booleans(),
        "divisor": st.sampled_from([2, 2.5, 3, 4]),
        "max_time": st.integers(1, 30),
        "max_trials": st.integers(1, 20),
        "max_concurrent_trials": st.integers(0, 6),
    }
)
searchers = st.one_of(
    st.just({"name": "single", "metric": "loss"}),
    st.builds(lambda n: {"name": "grid", "metric": "loss", "max_concurrent_trials": n}, st.integers(0, 20)),
    st.builds(
        lambda m, n: {"name": "random", "metric": "loss", "max_trials": m, "max_concurrent_trials": n},
        st.integers(1, 20),
        st.integers(0, 20),
    ),
    st.builds(lambda h, r: {**h, "name": "async_halving", "num_rungs": r}, halving, st.integers(1, 5)),
    st.builds(lambda h, r: {**h, "name": "asha", "num_rungs": r}, halving, st.one_of(st.none(), st.integers(1, 5))),
    st.builds(
        lambda h, n, grace: {
            **{k: h[k] for k in h if k != "divisor"},
            "name": "median_stopping",
            "interval": n,
            "grace": grace,
        },
        halving,
        st.one_of(st.none(), st.integers(1, 40)),
        st.integers(0, 10),
    ),
    st.builds(
        lambda h, mode, rungs: {**h, "name": "adaptive_asha", "mode": mode, "bracket_rungs": rungs},
        halving,
        st.sampled_from(["aggressive", "standard", "conservative"]),
        st.lists(st.integers(1, 4), max_size=4),
    ),
)


@settings(max_examples=150, deadline=None)
@given(searchers, st.integers(0, 2**32 - 1), st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.25]))
def test_every_search_ends_once_within_limits_despite_restarts(
    searcher: dict[str, Any], seed: int, life: int, early: float
) -> None:
    world = Life(searcher, SPACE, seed, random.Random(life), early)
    world.live()
    most = {"single": 1, "grid": GRID_SIZE}.get(searcher["name"]) or int(searcher["max_trials"])
    assert len(world.creates) - world.invalid <= most
    assert len(world.creates) <= 2 * most
    if not world.invalid and searcher["name"] != "single":
        assert len(world.creates) == most


@settings(max_examples=60, deadline=None)
@given(searchers, st.integers(0, 2**32 - 1), st.integers(0, 2**32), st.integers(0, 2**32))
def test_the_nth_trial_is_the_same_whatever_happened_before(
    searcher: dict[str, Any], seed: int, one: int, other: int
) -> None:
    lives = []
    for life in (one, other):
        world = Life(searcher, SPACE, seed, random.Random(life), 0.1)
        world.live()
        lives.append([(c.request_id, c.hparams, c.seed) for c in world.creates])
    shorter = min(map(len, lives))
    assert lives[0][:shorter] == lives[1][:shorter]


def test_a_snapshot_of_ten_thousand_trials_stays_small() -> None:
    searcher = {
        "name": "async_halving", "metric": "loss", "time_metric": "epochs", "num_rungs": 4, "divisor": 4,
        "max_time": 64, "max_trials": 10_000, "max_concurrent_trials": 16,
    }  # fmt: skip
    search, actions = Search.start(searcher, SPACE, 1)
    life = random.Random(1)
    queue = [a.request_id for a in actions if isinstance(a, Create)]
    while queue:
        trial = queue.pop()
        for epochs in (1, 4, 16, 64):
            actions = search.validation(trial, {"loss": life.random(), "epochs": epochs}, epochs)
            queue += [a.request_id for a in actions if isinstance(a, Create)]
            if any(isinstance(a, StopTrial) for a in actions):
                break
        search.exited(trial)
    assert search.progress() == 1.0
    assert len(json.dumps(search.snapshot())) < 10_000 * 80
