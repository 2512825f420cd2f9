"""A search that is killed at any event goes on as if it had not been: only what was committed counts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, text

from tests.service.master.db.test_migrate import OLD_ROWS
from tests.support.attempts import Attempts
from tests.support.bound import SETTINGS, bind
from tests.unit.search.test_properties import SPACE
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db import migrate
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.searches import search_events
from trainmaster.master.db.tables import Experiment, Trial
from trainmaster.master.lifecycle.experiment import Kill
from trainmaster.master.search import Action, Create, Search, SearchError
from trainmaster.master.search.conformance import Life
from trainmaster.master.services.master import Master
from trainmaster.master.services.orchestration import stored_search
from trainmaster.master.services.orchestration.experiment_lock import locked_experiment_in
from trainmaster.master.services.orchestration.live_searches import LiveSearch, LiveSearches, live_searches
from trainmaster.master.services.store import Store

CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: single, metric: loss}
"""
HALVING = {"metric": "loss", "time_metric": "epochs", "divisor": 2, "max_time": 8, "max_trials": 8}
SEARCHERS = {
    "single": {"metric": "loss"},
    "random": {"metric": "loss", "max_trials": 8, "max_concurrent_trials": 3},
    "grid": {"metric": "loss", "max_concurrent_trials": 4},
    "async_halving": {**HALVING, "num_rungs": 3, "max_concurrent_trials": 4},
    "adaptive_asha": {**HALVING, "mode": "conservative", "max_concurrent_trials": 4},
    "asha": {**HALVING, "max_concurrent_trials": 3},
    "pbt": {"metric": "loss", "time_metric": "epochs", "max_time": 10, "population": 4},
}


class Killed(RuntimeError):
    """Stands for whatever ends a transaction."""


def forget(master: Master, number: int) -> None:
    """What a master that starts again knows of the search."""
    with master.store.transaction() as session:
        live_searches(session).take(number)


def stored(attempts: Attempts, number: int) -> tuple[int, int]:
    """How many events of a search are stored, and the version of its snapshot."""
    counted = select(func.count()).where(search_events.c.experiment_id == number)
    with attempts.store.transaction() as session:
        return session.scalar(counted) or 0, session.get_one(Experiment, number).snapshot_version


class Disturbed(Life):
    """Trials that live at random, a search in memory, and the same search in a database with two masters, each of whose
    transactions may fail."""

    def __init__(self, masters: Sequence[Master], number: int, searcher: dict[str, Any], life: random.Random) -> None:
        super().__init__(searcher, SPACE, 1, life, 0.15)
        self.masters, self.number = masters, number
        with masters[0].experiment_lock.hold(number) as orchestrator:
            orchestrator.start_search()

    def take(self, event: str, args: Sequence[Any], spending: Mapping[str, float]) -> list[Action]:
        actions: list[Action] = getattr(self.search, event)(*args, **spending) or []
        while not self.told(event, args, spending, actions):
            pass
        return actions

    def told(self, event: str, args: Sequence[Any], spending: Mapping[str, float], actions: list[Action]) -> bool:
        master = self.life.choice(self.masters)
        fate = self.life.choice(["done", "done", "killed inside", "killed at the commit", "restarted"])
        if fate == "restarted":
            forget(master, self.number)
        try:
            with master.store.transaction() as session:
                with locked_experiment_in(session, SETTINGS, self.number) as orchestrator:
                    assert (getattr(orchestrator.search, event)(*args, **spending) or []) == actions
                    if fate == "killed inside":
                        raise Killed
                assert orchestrator.row.progress == self.search.progress()
                if fate == "killed at the commit":
                    raise Killed
        except Killed:
            return False
        return True


@pytest.fixture(scope="module")
def masters(attempts: Attempts) -> Iterator[list[Master]]:
    other = make_engine(attempts.engine.url, pool_size=2)  # type: ignore[arg-type]
    yield [attempts.master, bind(Store(other))]
    other.dispose()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after a few events."""
    monkeypatch.setattr(stored_search, "FEWEST_EVENTS", 4)


def search_of(attempts: Attempts, searcher: dict[str, Any]) -> int:
    return attempts.experiment(parse_experiment(CONFIG).to_json() | {"searcher": searcher, "hyperparameters": SPACE})


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("name", SEARCHERS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=st.integers(0, 2**32))
def test_search_killed_at_any_event_continues_unchanged(
    attempts: Attempts, masters: Sequence[Master], name: str, life: int
) -> None:
    searcher = {"name": name, **SEARCHERS[name]}  # type: ignore[dict-item]
    world = Disturbed(masters, search_of(attempts, searcher), searcher, random.Random(life))
    world.live()
    for master in masters:
        with master.experiment_lock.hold(world.number) as orchestrator:
            assert orchestrator.search.snapshot() == world.search.snapshot()
            assert orchestrator.search.describe() == world.search.describe()


@pytest.mark.usefixtures("often")
def test_an_event_writes_a_row_and_a_snapshot_replaces_them(attempts: Attempts) -> None:
    number = search_of(attempts, {"name": "random", "metric": "loss", "max_trials": 4})
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        trials = [action.request_id for action in orchestrator.start_search() if isinstance(action, Create)]
    before = stored(attempts, number)
    assert before[0] == 0 < before[1]
    counts = []
    for step in range(1, 9):
        with attempts.master.experiment_lock.hold(number) as orchestrator:
            orchestrator.search.validation(trials[0], {"loss": 1.0}, step)
            orchestrator.search.validation(trials[0], {"loss": 2.0}, step)  # is none
            orchestrator.search.progressed(trials[1], 0.5)  # is one only at the first time
        counts.append(stored(attempts, number)[0])
    assert counts == [2, 3, 4, 5, 6, 0, 1, 2]
    assert stored(attempts, number)[1] > before[1]
    with attempts.master.experiment_lock.hold(number):
        pass
    assert stored(attempts, number)[0] == 2, "who has nothing to tell the search writes nothing of it"


def test_search_with_inconsistent_events_is_not_continued(attempts: Attempts) -> None:
    number = search_of(attempts, {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 1})
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.begin()
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        (first,) = orchestrator.session.scalars(select(Trial.request_id).where(Trial.experiment_id == number))
        orchestrator.search.exited(first)
    for change in ({"actions": 2}, {"trial": 3}):
        with attempts.store.transaction() as session:
            session.execute(search_events.update().where(search_events.c.experiment_id == number).values(change))
        forget(attempts.master, number)
        with (
            pytest.raises(SearchError, match="the stored search cannot be rebuilt, its event EXITED"),
            attempts.master.experiment_lock.hold(number) as orchestrator,
        ):
            assert orchestrator.search
    with attempts.master.experiment_lock.hold(number) as orchestrator:
        orchestrator.experiment_event(Kill())
    with attempts.store.transaction() as session:
        assert session.get_one(Experiment, number).state == "CANCELED"


def test_search_stored_before_events_continues_after_upgrade(empty_url: str) -> None:
    config = parse_experiment(CONFIG).to_json()
    config |= {"searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}, "hyperparameters": SPACE}
    search, actions = Search.start(config["searcher"], SPACE, 1)
    running = [action.request_id for action in actions if isinstance(action, Create)]
    engine = make_engine(empty_url, pool_size=2)
    migrate.upgrade(engine, "0016")
    with engine.begin() as connection:
        for statement in (*OLD_ROWS, *_OLD_SEARCH):
            facts = {"config": json.dumps(config), "search": json.dumps(search.snapshot())}
            connection.execute(text(statement), facts if ":config" in statement else {})
    migrate.upgrade(engine)
    master = bind(Store(engine))
    for _ in range(2):
        one = running.pop(0)
        expected = search.exited(one)
        with master.experiment_lock.hold(1) as orchestrator:
            assert orchestrator.search.exited(one) == expected
        forget(master, 1)
    with master.experiment_lock.hold(1) as orchestrator:
        assert orchestrator.search.snapshot() == search.snapshot()
    engine.dispose()


_OLD_SEARCH = (
    "INSERT INTO workspaces (id, name, archived, immutable, user_id, state, error) VALUES"
    " (1, 'w', false, false, 1, '', '') ON CONFLICT DO NOTHING",
    "INSERT INTO projects (id, name, description, workspace_id, archived, immutable, user_id, key, notes, state, error)"
    " VALUES (1, 'p', '', 1, false, false, 1, 'p', '[]', '', '') ON CONFLICT DO NOTHING",
    "INSERT INTO experiments (id, job_id, owner_id, project_id, state, reason, name, notes, labels, archived, config,"
    " original_config, resource_pool, searcher_type, searcher_metric, smaller_is_better, seed, search, progress,"
    " num_trials, live_trials, checkpoint_count, checkpoint_size, context_size, gc_due)"
    " VALUES (1, '00000000-0000-0000-0000-000000000001', 1, 1, 'ACTIVE', '', 'x', '', '[]', false,"
    " CAST(:config AS jsonb), '', 'main', 'grid', 'loss', true, 1, CAST(:search AS jsonb), 0, 2, 2, 0, 0, 0, false)",
)


def test_the_searches_that_were_used_last_are_held() -> None:
    held = LiveSearches(most_trials=100)
    searches = [LiveSearch(Search.start(config, {}, 1)[0], version) for version, config in enumerate(
        [{"name": "random", "max_trials": n, "max_concurrent_trials": 0} for n in (10, 10, 10, 500)]
    )]  # fmt: skip
    for number in range(3):
        held.put(number, searches[number])
    assert held.take(0) is searches[0]
    assert held.take(0) is None, "whoever takes one has it alone"
    held.put(0, searches[0])
    held.put(4, searches[1])
    assert [held.take(number) for number in (0, 1, 2, 4)] == [searches[0], None, searches[2], searches[1]]
    held.put(0, searches[0])
    held.put(3, searches[3])
    assert [held.take(number) for number in (0, 3)] == [None, searches[3]], "one that is too large is held alone"
