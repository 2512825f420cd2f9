"""Other people's jobs in the queue, whether or not any of ours is there."""

from __future__ import annotations

from collections.abc import Iterator
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


def test_they_are_asked_for_where_no_job_of_ours_makes_us_look(
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


def test_a_cluster_that_is_away_keeps_the_last_ones(
    shown: Clusters, dispatcher: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids(shown) == ["1"]
    monkeypatch.setattr(clusters, "EXTERNAL_FRESH", 0.0)
    dispatcher.away = True
    assert ids(shown) == ["1"]


def test_nobody_who_looks_at_the_queue_waits_for_a_look_that_is_under_way(shown: Clusters, dispatcher: Shared) -> None:
    (cluster,) = shown
    with shown._look_at(cluster):
        assert ids(shown) == []
    assert dispatcher.looks == 0


def test_none_are_shown_where_the_administrator_does_not_want_it(dispatcher: Shared, tmp_path: Path) -> None:
    assert ids(Clusters([Cluster("x", dispatcher, tmp_path)])) == []
    assert dispatcher.looks == 0
