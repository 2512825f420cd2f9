"""Whatever happens to the trials, in whatever order, a search keeps its promises."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.master.search import Action, Create, ExitReason, Search, Shutdown, StopTrial

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
    st.builds(
        lambda h, mode, rungs: {**h, "name": "adaptive_asha", "mode": mode, "bracket_rungs": rungs},
        halving,
        st.sampled_from(["aggressive", "standard", "conservative"]),
        st.lists(st.integers(1, 4), max_size=4),
    ),
)
VALUES: list[Any] = [0.0, 1, -1.5, 3e300, float("nan"), "NaN", "-Infinity", None]


class World:
    """Trials that live at random, and two searches that see them; one is restored before every event."""

    def __init__(self, searcher: dict[str, Any], seed: int, life: random.Random, early: float) -> None:
        self.searcher, self.life, self.early = searcher, life, early
        self.search, actions = Search.start(searcher, SPACE, seed)
        self.restored, again = Search.start(searcher, SPACE, seed)
        assert actions == again
        self.creates: list[Create] = []
        self.running: dict[str, int] = {}  # told nothing -> epochs so far
        self.leaving: set[str] = set()
        self.gone: list[str] = []
        self.invalid = 0
        self.ends: list[Shutdown] = []
        self.carry_out(actions)

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            assert action.why
            assert not self.ends, "something was asked for after the shutdown"
            match action:
                case Create():
                    self.creates.append(action)
                    self.running[action.request_id] = 0
                case StopTrial():
                    del self.running[action.request_id]  # a second stop, or one for a strange trial, fails here
                    self.leaving.add(action.request_id)
                case Shutdown():
                    self.ends.append(action)
        if self.limit:
            assert len(self.running) <= self.limit
        assert len(self.creates) - self.invalid <= self.most
        assert len(self.creates) <= 2 * self.most

    @property
    def most(self) -> int:
        return {"single": 1, "grid": GRID_SIZE}.get(self.searcher["name"]) or int(self.searcher["max_trials"])

    @property
    def limit(self) -> int:
        return int(self.searcher.get("max_concurrent_trials", 1))

    def tell(self, event: str, *args: Any) -> None:
        stored = json.loads(json.dumps(self.restored.snapshot()))
        self.restored = Search.restore(self.searcher, SPACE, stored)
        assert self.restored.snapshot() == stored
        actions = getattr(self.search, event)(*args)
        assert getattr(self.restored, event)(*args) == actions
        assert self.restored.progress() == self.search.progress()
        assert self.restored.describe() == self.search.describe()
        assert 0 <= self.search.progress() <= 1
        self.carry_out(actions or [])

    def step(self) -> None:
        trial = self.life.choice([*self.running, *self.leaving])
        dice = self.life.random()
        if self.gone and dice < 0.1:  # an echo from a trial that has ended
            trial = self.life.choice(self.gone)
            self.tell("exited", trial)
            self.tell("validation", trial, {"loss": 0, "epochs": 99}, 99)
        elif dice < 0.6:
            epochs = self.running.get(trial, 50) + self.life.choice([-1, 0, 1, 1, 2, 5])
            if trial in self.running:
                self.running[trial] = max(epochs, self.running[trial])
            metrics: dict[str, Any] = {"epochs": epochs} if self.life.random() < 0.9 else {}
            if self.life.random() < 0.9:
                metrics["loss"] = self.life.choice(VALUES[:4] if self.life.random() < 0.9 else VALUES)
            self.tell("validation", trial, metrics, epochs)
        elif dice < 0.7:
            self.tell("progressed", trial, self.life.random())
        elif dice < 0.7 + self.early:
            reason = self.life.choice(list(ExitReason))
            if reason is ExitReason.INVALID_HP and trial in self.running:
                self.invalid += 1
            self.leave(trial)
            self.tell("exited_early", trial, reason)
        else:
            self.leave(trial)
            self.tell("exited", trial)

    def leave(self, trial: str) -> None:
        self.running.pop(trial, None)
        self.leaving.discard(trial)
        self.gone.append(trial)

    def live(self) -> None:
        for _ in range(5000):
            if not self.running and not self.leaving:
                return
            assert not self.ends, "shut down while trials run"
            self.step()
        raise AssertionError("the search does not end")


@settings(max_examples=150, deadline=None)
@given(searchers, st.integers(0, 2**32 - 1), st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.25]))
def test_every_search_ends_once_within_limits_despite_restarts(
    searcher: dict[str, Any], seed: int, life: int, early: float
) -> None:
    world = World(searcher, seed, random.Random(life), early)
    world.live()
    assert len(world.ends) == 1
    assert world.search.progress() == 1.0
    if not world.invalid and searcher["name"] != "single":
        assert len(world.creates) == world.most


@settings(max_examples=60, deadline=None)
@given(searchers, st.integers(0, 2**32 - 1), st.integers(0, 2**32), st.integers(0, 2**32))
def test_the_nth_trial_is_the_same_whatever_happened_before(
    searcher: dict[str, Any], seed: int, one: int, other: int
) -> None:
    lives = []
    for life in (one, other):
        world = World(searcher, seed, random.Random(life), 0.1)
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
