"""Which nodes an attempt is kept away from, read from how the last jobs went."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from tests.support.attempts import Attempts
from trainmaster.dispatchers.base import Pool, SlotType
from trainmaster.master.db.tables import AllocationNode, Trial
from trainmaster.master.lifecycle.breaker import THRESHOLD
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Unavailable
from trainmaster.master.services.scheduling import pool_health

NAMES = (f"standing{number}" for number in itertools.count())


class Site:
    """A pool of nodes with four slots each, on a cluster of its own."""

    def __init__(self, attempts: Attempts, nodes: int = 40) -> None:
        self.attempts, self.cluster = attempts, next(NAMES)
        self.pool = Pool("main", SlotType.CUDA, 4 * nodes, nodes=nodes, slots_per_node=4)

    def attempt(self, **facts: Any) -> str:
        return self.attempts.attempt(**{"dispatcher": self.cluster, **facts})

    def lost(self, *nodes: str, trial: str | None = None, ago: float = 60.0, **facts: Any) -> None:
        """A job that was lost there; of the trial of the attempt `trial`, or of another one."""
        ended = {
            "outcome": "infrastructure",
            "observed_state": "INFRASTRUCTURE",
            "observed": {"nodes": list(nodes)},
            "ended_at": now() - dt.timedelta(seconds=ago),
            **facts,
        }
        name = self.attempt(**ended)
        if trial is not None:
            self.attempts.change(name, trial_id=self.attempts.row(trial).trial_id)

    def avoided(self, name: str, slots: int = 1) -> list[str]:
        return self.attempts.master.pool_health.avoided_nodes(self.cluster, self.pool, slots, name)

    def forbid(self, name: str, *nodes: str) -> None:
        """As a log policy does; the trial has met them in this pool."""
        trial_id = self.attempts.row(name).trial_id
        earlier = self.attempt(ended_at=now(), outcome="failed")
        self.attempts.change(earlier, trial_id=trial_id)
        with self.attempts.store.transaction() as session:
            session.get_one(Trial, trial_id).blocked_nodes = list(nodes)
            for rank, node in enumerate(nodes):
                session.add(AllocationNode(allocation_id=earlier, node_rank=rank, name=node, slot_ids=[], addresses=[]))


@pytest.fixture
def site(attempts: Attempts) -> Site:
    return Site(attempts)


def test_trial_avoids_node_that_lost_its_job_for_an_hour(site: Site) -> None:
    mine, other = site.attempt(), site.attempt()
    site.lost("n1", trial=mine)
    site.lost("n2", trial=mine, ago=pool_health.AVOID_FOR + 5)
    assert (site.avoided(mine), site.avoided(other)) == (["n1"], [])


def test_trial_avoids_node_that_lacks_its_gpus(site: Site) -> None:
    mine = site.attempt()
    said = {"exit_code": pool_health.UNFIT, "began": False}
    exits = {"0": {**said, "node_name": "n1"}, "1": {"exit_code": 75, "began": False, "node_name": "n2"}}
    for trial in (mine, None, None):
        site.lost(trial=trial, observed_state=None, exits=exits)
    site.lost(trial=mine, observed_state=None, exits={"0": {**said, "began": True, "node_name": "n3"}})
    assert (site.avoided(mine), site.avoided(site.attempt())) == (["n1"], [])


def test_a_node_that_lost_jobs_of_two_trials_is_avoided_by_all(site: Site) -> None:
    for _ in range(2):
        site.lost("n1", "n2")
    site.lost("n2")
    assert site.avoided(site.attempt()) == ["n2", "n1"]


@pytest.mark.parametrize(
    "facts", [{"outcome": "failed"}, {"observed_state": "CANCELLED"}, {"dispatcher": "elsewhere"}], ids=str
)
def test_only_infrastructure_failures_make_node_avoided(site: Site, facts: dict[str, Any]) -> None:
    mine = site.attempt()
    site.lost("n1", trial=mine, **facts)
    assert site.avoided(mine) == []


@pytest.mark.parametrize(("nodes", "avoided"), [(2, 0), (8, 2), (12, 3), (400, pool_health.MOST_AVOIDED)])
def test_no_more_of_a_pool_is_avoided_than_it_can_spare(attempts: Attempts, nodes: int, avoided: int) -> None:
    site = Site(attempts, nodes)
    for number in range(12):
        for _ in range(2):
            site.lost(f"n{number}")
    assert len(site.avoided(site.attempt())) == avoided


def test_enough_nodes_are_left_for_the_job(attempts: Attempts) -> None:
    site = Site(attempts, nodes=3)
    mine = site.attempt()
    site.lost("n1", "n2", trial=mine)
    assert [len(site.avoided(mine, slots)) for slots in (1, 4, 5, 8, 9, 12)] == [2, 2, 1, 1, 0, 0]


def test_nodes_forbidden_by_log_policy_are_never_let_in_again(attempts: Attempts) -> None:
    site = Site(attempts, nodes=3)
    mine = site.attempt()
    site.lost("n1", "n2", trial=mine)
    site.forbid(mine, "n2", "n3")
    assert site.avoided(mine, slots=4) == ["n2", "n3"]
    with pytest.raises(Unavailable, match="away from n2, n3, and the pool main has only 1 of the 2 others"):
        site.avoided(mine, slots=8)
    assert site.avoided(site.attempt(), slots=8) == []


def test_jobs_forgotten_at_one_moment_count_as_one_failure(attempts: Attempts) -> None:
    pool, gone = next(NAMES), now() - dt.timedelta(seconds=310)
    for _ in range(2 * THRESHOLD):
        attempts.attempt(pool=pool, submitted_at=gone, absent_since=gone, ended_at=now(), outcome="infrastructure")
    assert pool not in attempts.master.pool_health.paused_pools()


@pytest.mark.parametrize(("started_ago", "paused"), [(60.0, False), (600.0, True), (None, True)])
def test_vanished_job_counts_as_failed_when_it_vanished(
    attempts: Attempts, started_ago: float | None, paused: bool
) -> None:
    pool = next(NAMES)
    for place in range(THRESHOLD):
        gone = now() - dt.timedelta(seconds=310 + place)
        attempts.attempt(pool=pool, submitted_at=gone, absent_since=gone, ended_at=now(), outcome="infrastructure")
    if started_ago is not None:
        attempts.attempt(pool=pool, leased_at=now() - dt.timedelta(seconds=started_ago), lease_job="1")
    assert (pool in attempts.master.pool_health.paused_pools()) is paused
