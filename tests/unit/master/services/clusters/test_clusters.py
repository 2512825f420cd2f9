"""Other people's jobs in the queue, whether or not any of ours is there; names of pools of several clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.dispatchers.base import ClusterFacts, ExternalJob, JobState, Setup, Snapshot, Unreachable
from trainmaster.dispatchers.local.dispatcher import LocalDispatcher
from trainmaster.master.services.clusters import clusters
from trainmaster.master.services.clusters.clusters import Cluster, Clusters


class Shared(LocalDispatcher):
    """This machine, with other people's jobs on it."""

    away = False
    looks = 0

    def observe(self) -> Snapshot:
        self.looks += 1
        if self.away:
            raise Unreachable("nobody answers")
        seen = super().observe()
        return Snapshot(seen.taken_at, seen.jobs, (ExternalJob(str(self.looks), "main", "ada", JobState.RUNNING),))


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(Setup(name="x", prefix="det-", job_root=tmp_path))
    yield made
    made.close()


@pytest.fixture
def shown(dispatcher: Shared, tmp_path: Path) -> Clusters:
    return Clusters([Cluster("x", dispatcher, tmp_path, facts=ClusterFacts(shows_external=True))])


def ids(known: Clusters) -> list[str]:
    return [job.job_id for job in known.external_jobs()]


def test_external_jobs_are_queried_without_own_jobs(
    shown: Clusters, dispatcher: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [ids(shown), ids(shown)] == [["1"], ["1"]]
    assert dispatcher.looks == 1, "a page that is looked at often is no reason to ask the cluster often"
    monkeypatch.setattr(clusters, "EXTERNAL_FRESH", 0.0)
    assert ids(shown) == ["2"]


def test_a_look_for_our_own_jobs_shows_theirs_too(shown: Clusters, dispatcher: Shared) -> None:
    (cluster,) = shown
    shown.observe(cluster)
    assert (ids(shown), dispatcher.looks) == (["1"], 1)


def test_unreachable_cluster_keeps_last_external_jobs(
    shown: Clusters, dispatcher: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids(shown) == ["1"]
    monkeypatch.setattr(clusters, "EXTERNAL_FRESH", 0.0)
    dispatcher.away = True
    assert ids(shown) == ["1"]


def test_queue_listing_does_not_wait_for_ongoing_look(shown: Clusters, dispatcher: Shared) -> None:
    (cluster,) = shown
    with shown._look_at(cluster):
        assert ids(shown) == []
    assert dispatcher.looks == 0


def test_none_are_shown_where_the_administrator_does_not_want_it(dispatcher: Shared, tmp_path: Path) -> None:
    assert ids(Clusters([Cluster("x", dispatcher, tmp_path)])) == []
    assert dispatcher.looks == 0


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Cluster]]:
    """Two clusters whose only pool has the same name."""
    made = []
    for name in ("alps", "jura"):
        setup = Setup(name=name, prefix="det-", job_root=tmp_path / name, options={"pool_name": "main", "slots": 2})
        made.append(Cluster(name, Shared(setup), tmp_path / name, facts=ClusterFacts(shows_external=True)))
    yield made
    for cluster in made:
        cluster.dispatcher.close()


def test_pools_of_the_same_name_are_named_by_their_cluster(two: list[Cluster]) -> None:
    known = Clusters(two)
    assert [served.pool.name for served in known.pools()] == ["main", "jura.main"]
    assert known.resolve("main", 1).cluster is two[0]
    assert known.resolve("alps.main", 1).cluster is two[0]
    second = known.resolve("jura.main", 1)
    assert (second.cluster, second.partition) == (two[1], "main")
    (sentence,) = known.namesakes(two[1])
    assert "main of jura is called jura.main, because alps has a pool of that name" in sentence
    assert known.namesakes(two[0]) == []


def test_attempt_stays_on_its_cluster_when_pool_is_renamed(two: list[Cluster]) -> None:
    assert Clusters(two).resolve("main", 1, "jura").cluster is two[1]


def test_names_of_an_administrators_own_do_not_clash(two: list[Cluster]) -> None:
    known = Clusters([two[0], replace(two[1], pool_prefix="jura-", default_compute="jura-main")])
    assert [served.pool.name for served in known.pools()] == ["main", "jura-main"]
    assert known.resolve("", 1).pool.name == "jura-main"
    assert known.resolve("jura-main", 1).partition == "main"
    assert known.namesakes(two[1]) == []


def test_others_jobs_are_in_the_pool_of_their_cluster(two: list[Cluster]) -> None:
    assert [job.pool for job in Clusters(two).external_jobs()] == ["main", "jura.main"]
