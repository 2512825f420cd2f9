"""What a search says of its past is what it decided then."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.search.test_properties import SPACE, halving
from trainmaster.master.search import Action, Arrival, Create, Search, StopTrial
from trainmaster.master.search.conformance import Life

ASHA = {
    "name": "async_halving", "metric": "loss", "time_metric": "epochs", "num_rungs": 3, "divisor": 3,
    "max_time": 9, "max_trials": 9, "max_concurrent_trials": 3,
}  # fmt: skip
WHY = re.compile(r"rung (\d+) \(\d+ epochs\): rank (\d+) of (\d+) on loss, the (?:best (\d+) go on|top rung)$")
several = st.one_of(
    st.builds(lambda h, r: {**h, "name": "async_halving", "num_rungs": r}, halving, st.integers(1, 4)),
    st.builds(
        lambda h, rungs: {**h, "name": "adaptive_asha", "bracket_rungs": rungs},
        halving,
        st.lists(st.integers(1, 4), max_size=3),
    ),
)


def unknown(_trial: int, _rung: int) -> float:
    raise AssertionError("the search has recorded the order")


class Watched(Life):
    """Keeps what the search had said with each decision to stop a trial."""

    def __init__(self, *args: Any) -> None:
        self.said: list[tuple[str, str, list[list[Arrival]]]] = []
        self.search: Search
        super().__init__(*args)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, StopTrial):
                self.said.append((action.request_id, action.why, self.search.arrivals(unknown)))
        super()._carry_out(actions)


@settings(max_examples=60, deadline=None)
@given(several, st.integers(0, 2**32 - 1), st.integers(0, 2**32))
def test_ranks_and_cuts_are_those_of_the_decisions(searcher: dict[str, Any], seed: int, life: int) -> None:
    world = Watched(searcher, SPACE, seed, random.Random(life), 0.0)
    world.live()
    numbers = {key: at for at, key in enumerate(world.search.request_ids)}
    at_the_end = world.search.arrivals(unknown)
    for trial, why, then in world.said:
        bracket, last = next(
            (at, arrivals[-1]) for at, arrivals in enumerate(then) if arrivals and arrivals[-1].trial == numbers[trial]
        )
        assert at_the_end[bracket][: len(then[bracket])] == then[bracket], "the past has changed"
        if found := WHY.search(why):
            rung, rank, of, keep = found.groups()
            assert (last.rung + 1, last.rank, last.of) == (int(rung), int(rank), int(of))
            assert keep is None or (last.keep == int(keep) and last.rank > last.keep)
        else:
            assert last.value is None
    assert world.restored.arrivals(unknown) == at_the_end
    assert sorted(refilled(at_the_end), key=lambda one: one[:2]) == [
        (at, rung, list(ranking.values), ranking.cut)
        for at, bracket in enumerate(world.search.rankings())
        for rung, ranking in enumerate(bracket.rungs)
        if ranking.trials
    ]


def refilled(brackets: list[list[Arrival]]) -> Iterator[tuple[int, int, list[float | None], float | None]]:
    """Each rung as its arrivals leave it."""
    for at, arrivals in enumerate(brackets):
        rungs: dict[int, list[Arrival]] = {}
        for one in arrivals:
            rungs.setdefault(one.rung, []).insert(0, one)
        for rung, mine in rungs.items():
            order: list[Arrival] = []
            for one in reversed(mine):
                order.insert(one.rank - 1, one)
            yield at, rung, [one.value for one in order], mine[0].cut


def test_search_without_recorded_order_takes_it_from_times() -> None:
    search, actions = Search.start(ASHA, SPACE, 3)
    first, second, third = (action.request_id for action in actions if isinstance(action, Create))
    search.validation(second, {"loss": 2.0, "epochs": 1}, 1)
    search.validation(first, {"loss": 1.0, "epochs": 1}, 1)
    stored = search.snapshot()
    del stored["method"]["arrived"]
    again = Search.restore(ASHA, SPACE, stored)
    again.validation(third, {"loss": 0.5, "epochs": 3}, 3)
    search.validation(third, {"loss": 0.5, "epochs": 3}, 3)

    def times(trial: int, rung: int) -> float:
        return {(1, 0): 10.0, (0, 0): 11.0}[trial, rung]

    assert again.arrivals(times) == search.arrivals(unknown)
    assert [(one.trial, one.rung, one.rank, one.of, one.cut) for one in again.arrivals(times)[0]] == [
        (1, 0, 1, 1, 2.0),
        (0, 0, 1, 2, 1.0),
        (2, 0, 1, 3, 0.5),
        (2, 1, 1, 1, 0.5),
    ]


def test_values_are_as_trials_reported_them() -> None:
    search, actions = Search.start({**ASHA, "smaller_is_better": False}, SPACE, 3)
    first, second, _ = (action.request_id for action in actions if isinstance(action, Create))
    search.validation(first, {"loss": 1.0, "epochs": 1}, 1)
    search.validation(second, {"loss": float("nan"), "epochs": 1}, 1)
    assert [(one.value, one.cut, one.rank) for one in search.arrivals(unknown)[0]] == [(1.0, 1.0, 1), (None, 1.0, 2)]
