"""The benchmark of searches: what it concludes from runs, and how it drives searches of other packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.search_peer import Peer, PromotingPeer, TimedSearch, native
from benchmarks.search_report import Results, RunRecord, TaskRecord, markdown, ratio, verdicts
from trainmaster.master.search.simulation import RecordedCurves, SimulatedCluster, Simulation, SimulationResult
from trainmaster.master.values.search import SearchGoal

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 8.0}, "kind": {"type": "categorical", "vals": [1, "a"]}}
POINTS = [{"x": float(n), "kind": 1} for n in range(9)]


def results(**times: list[float | None]) -> Results:
    """Results of one task that misleads, with four workers; the mean on the way is a tenth of the time."""
    task = TaskRecord("t", 9, 0.1, target=0.2, best=0.0, worst=1.0)
    runs = [
        RunRecord("t", 4, name, seed, took, (took or 6.0) / 10, 0.0, 0.5, 10, 6.0)
        for name, values in times.items()
        for seed, took in enumerate(values)
    ]
    return Results("a machine", list(times), [name for name in times if name.startswith("peer")], [task], runs)


def test_a_search_is_held_against_the_best_of_the_others() -> None:
    found = ratio(results(asha=[2.2] * 5, peer=[2.0] * 5, peer2=[4.0] * 5), "t", 4, "asha", ["peer", "peer2"], "time")
    assert found is not None
    assert (found.other, found.value, found.low, found.high) == ("peer", pytest.approx(1.1), *[pytest.approx(1.1)] * 2)
    assert ratio(results(asha=[1.0]), "t", 4, "asha", ["peer"], "time") is None


@pytest.mark.parametrize(
    ("asha", "verdict"), [([2.0] * 6, "passes"), ([1.0, 1.0, 2.3, 2.3, 2.3, 2.3], "undecided"), ([3.0] * 6, "fails")]
)
def test_a_ratio_above_the_limit_fails_where_its_whole_band_is(asha: list[float | None], verdict: str) -> None:
    found = ratio(results(asha=asha, peer=[2.0] * 6), "t", 4, "asha", ["peer"], "time")
    assert found is not None
    assert found.verdict(1.1) == verdict


def test_a_target_that_is_not_reached_counts_as_reached_at_the_end() -> None:
    found = ratio(results(asha=[None] * 3, peer=[3.0] * 3), "t", 4, "asha", ["peer"], "time")
    assert found is not None
    assert found.value == pytest.approx(2.0)


def test_regret_is_measured_from_the_best_value_that_any_run_found() -> None:
    given = results(asha=[2.0], peer=[2.0])
    given.runs.append(RunRecord("t", 4, "auto", 0, 1.0, 0.1, -0.5, 0.5, 10, 6.0))
    assert given.values([given.runs[0]], "regret")[0] == pytest.approx((0.2 + 0.5) / 1.5)


def test_every_criterion_is_told_and_the_file_keeps_all(tmp_path: Path) -> None:
    given = results(random=[6.0] * 3, asha=[2.0] * 3, auto=[1.0] * 3, peer=[None, 3.0, 3.0])
    given.write(tmp_path / "runs.json")
    read = Results.read(tmp_path / "runs.json")
    said = dict(verdicts(read))
    assert json.loads((tmp_path / "runs.json").read_text())["machine"] == "a machine"
    assert said["asha beside the best peer that draws at random, at most 1.10 by time"].startswith("1 of 1 cells pass")
    assert said["auto at most 0.80 of asha's regret on half of the tables"] == "on 1 of 1: passes (t 0.50)"
    assert "auto beside random search, where early epochs mislead, t, 4 workers" in said
    lines = markdown(read).splitlines()
    assert lines[2].startswith("| random (n 3) | 3.00 | 3.00 | 100% | 0.5 ms |")
    assert lines[-1].endswith("| peer: 3.00 (3.00 to never) |")
    assert len({line.count("|") for line in lines[:6]}) == 1


def simulated(peer: Peer | PromotingPeer, workers: int, deaths: float = 0.0) -> tuple[SimulationResult, TimedSearch]:
    actions = peer.begin(workers)
    timed = TimedSearch(peer, actions, 0.0)
    curves = RecordedCurves(POINTS, [[p["x"] + 9 - epoch for epoch in range(9)] for p in POINTS], [1.0] * len(POINTS))
    goal = SearchGoal(metric="loss", time_metric="epochs")
    simulation = Simulation(timed, actions, goal, curves, SimulatedCluster(workers, deaths=deaths), 0)
    return simulation.run(60.0), timed


class Halving(PromotingPeer):
    """Three points for three epochs, then the best of them for nine."""

    def __init__(self) -> None:
        super().__init__(SPACE, 9)
        self.told: list[tuple[int, float | None]] = []
        self.asked = 0

    def _ask(self) -> tuple[Any, Any, Mapping[str, Any], int]:
        self.asked += 1
        if self.asked == 4:
            return 0, 1, {"x": 1, "kind": 1}, 9
        return self.asked, self.asked, {"x": self.asked % 9, "kind": 1}, 3

    def _tell(self, question: Any, value: float | None) -> None:
        self.told.append((question, value))


def test_a_promoted_trial_continues_where_it_paused() -> None:
    peer = Halving()
    outcome, timed = simulated(peer, 1)
    assert peer.told[:4] == [(1, 8.0), (2, 9.0), (3, 10.0), (0, 2.0)]
    assert outcome.trained[:3] == [9, 3, 3]
    assert timed.created == len(outcome.trained)


def test_a_trial_that_keeps_dying_is_told_as_failed_and_replaced() -> None:
    peer = Halving()
    simulated(peer, 1, deaths=1.0)
    failed = peer.told.index((0, None))  # the one that was to train for nine epochs
    assert len(peer.told) > failed + 1


def test_points_are_told_in_the_types_of_the_table() -> None:
    class Text(str):
        """As a package's own scalar, equal to what the table has."""

    point = native(SPACE, {"x": 3, "kind": Text("a")})
    assert [(type(value), value) for value in point.values()] == [(float, 3.0), (str, "a")]
