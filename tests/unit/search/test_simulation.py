"""Searches on recorded curves: what time, places, queues, deaths and pauses do."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from trainmaster.master.search.simulated import course_of
from trainmaster.master.search.simulation import RecordedCurves, SimulatedCluster, Simulation, SimulationResult

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
POINTS = [{"x": n / 100} for n in range(101)]
# Larger x ends lower, and begins lower.
VALUES = [[(2 - point["x"]) / (1 + unit) for unit in range(9)] for point in POINTS]
TIMED: dict[str, Any] = {
    "metric": "loss", "time_metric": "epochs", "max_time": 9, "divisor": 3, "max_trials": 27,
    "max_concurrent_trials": 4,
}  # fmt: skip


def run(
    searcher: dict[str, Any], cluster: SimulatedCluster, seed: int = 0, until: float = math.inf
) -> SimulationResult:
    curves = RecordedCurves(POINTS, VALUES, [10.0] * len(POINTS))
    return Simulation.of(searcher, SPACE, curves, cluster, seed).run(until)


def test_random_search_trains_every_trial_to_its_end() -> None:
    outcome = run(
        {"name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 0}, SimulatedCluster(places=2)
    )
    assert outcome.trained == [9] * 6
    assert (outcome.done, outcome.end, outcome.slot_seconds) == (True, 3 * 90.0, 6 * 90.0)
    assert outcome.bests[0][0] == 10.0
    assert outcome.spent == [2 * at for at, _ in outcome.bests]  # both places are taken all the time
    assert [value for _, value in outcome.bests] == sorted({value for _, value in outcome.bests}, reverse=True)


def test_queue_delays_the_start_and_costs_no_slots() -> None:
    searcher = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}
    outcome = run(searcher, SimulatedCluster(places=2, delay=lambda _: 1000.0))
    assert (outcome.end, outcome.slot_seconds) == (1090.0, 180.0)


def test_halving_finds_as_much_for_less() -> None:
    full = run(
        {"name": "random", "metric": "loss", "max_trials": 27, "max_concurrent_trials": 4}, SimulatedCluster(places=4)
    )
    for name in ("asha", "auto"):
        cut = run({"name": name, **TIMED}, SimulatedCluster(places=4))
        assert cut.done
        assert cut.slot_seconds < full.slot_seconds / 2
        assert max(cut.trained) == 9
        assert cut.bests[-1][1] <= full.bests[-1][1] * 1.2


def test_same_seed_is_the_same_and_deaths_cost_time() -> None:
    cluster = SimulatedCluster(places=4, delay=lambda stream: stream.expovariate(0.1), deaths=0.5)
    first, again, other = (run({"name": "asha", **TIMED}, cluster, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.done
    assert first.slot_seconds > run({"name": "asha", **TIMED}, SimulatedCluster(places=4), 1).slot_seconds


def test_time_ends_a_simulation() -> None:
    outcome = run({"name": "asha", **TIMED}, SimulatedCluster(places=4), until=35.0)
    assert (outcome.done, outcome.end) == (False, 30.0)
    assert outcome.first(0.0) is None
    assert outcome.first(2.0) == 10.0


def test_copies_continue_where_their_parents_are() -> None:
    searcher = {"name": "pbt", "metric": "loss", "time_metric": "epochs", "max_time": 9, "interval": 3, "population": 8}
    outcome = run(searcher, SimulatedCluster(places=8))
    assert outcome.done
    assert len(outcome.trained) > 8
    assert outcome.slot_seconds <= 8 * 90.0 + 1e-9


ONE: dict[str, Any] = {"name": "random", "metric": "loss", "max_trials": 1, "max_concurrent_trials": 1}


@pytest.mark.parametrize(
    ("walltime", "end", "used"),
    [
        (90.0, 100.0 + 90.0, 90.0),  # nine units of 10 s fit
        (30.0, 3 * 100.0 + 90.0, 90.0),  # three jobs of three units, each of which waits
        (45.0, 3 * 100.0 + 45.0 + 45.0 + 10.0, 100.0),  # four units and half of one that is lost, twice; one unit
    ],
)
def test_walltime_cuts_jobs_which_continue_where_their_trials_are(walltime: float, end: float, used: float) -> None:
    outcome = run(ONE, SimulatedCluster(places=1, delay=lambda _: 100.0, walltime=walltime))
    assert (outcome.trained, outcome.done) == ([9], True)
    assert outcome.end == pytest.approx(end)
    assert outcome.slot_seconds == pytest.approx(used)
    assert [at for at, _ in outcome.bests][:3] == [110.0, 120.0, 130.0]


def test_a_job_that_is_cut_gives_its_place_to_who_waits() -> None:
    outcome = run(
        {**ONE, "max_trials": 2, "max_concurrent_trials": 2}, SimulatedCluster(places=1, walltime=50.0)
    )  # 5 units of the first, 5 of the second, 4, 4
    assert outcome.end == 2 * 90.0
    assert outcome.trained == [9, 9]


def test_trials_whose_units_are_longer_than_the_walltime_fail_at_last() -> None:
    outcome = run(ONE, SimulatedCluster(places=1, walltime=9.0))
    assert (outcome.trained, outcome.bests, outcome.done) == ([0], [], True)
    assert outcome.slot_seconds == 6 * 9.0


def test_slots_of_a_job_all_count() -> None:
    one, four = (run({"name": "asha", **TIMED}, SimulatedCluster(places=4, slots=slots)) for slots in (1, 4))
    assert four.slot_seconds == pytest.approx(4 * one.slot_seconds)
    assert four.bests == one.bests


def test_course_is_the_median_and_the_quartiles_of_the_best_values() -> None:
    ends = ((30.0, [(10.0, 4.0), (20.0, 1.0)]), (40.0, [(10.0, 2.0)]), (20.0, [(20.0, 3.0)]))
    runs = [{"seconds": seconds, "bests": bests} for seconds, bests in ends]
    assert course_of(runs, smaller=True) == {
        "seconds": [10.0, 20.0, 30.0, 40.0],
        "lower": [3.0, 1.5, 1.5, 1.5],
        "median": [4.0, 2.0, 2.0, 2.0],
        "upper": [None, 2.5, 2.5, 2.5],
    }
    assert course_of(runs[1:2], smaller=False)["median"] == [2.0, 2.0]
    nothing = course_of([{"seconds": 5.0, "bests": []}], smaller=False)
    assert nothing == {"seconds": [5.0], "lower": [None], "median": [None], "upper": [None]}


def test_points_are_compared_by_dotted_names_and_wide_ranges_by_their_logarithm() -> None:
    points = [{"o.rate": 0.0001}, {"o.rate": 0.01}, {"o.rate": 1.0}]
    curves = RecordedCurves(points, [[1.0]] * 3, [1.0] * 3)
    assert curves.curve({"o": {"rate": 0.01}, "constant": 3}, {1}).number == 1
    assert curves.curve({"o": {"rate": 0.002}}, ()).number == 1
    assert curves.curve({"o": {"rate": 0.0005}}, ()).number == 0
    assert curves.curve({"o": {"rate": 0.4}}, ()).number == 2
    conditional = RecordedCurves([{"k": "a"}, {"k": "b", "n": 3}], [[1.0]] * 2, [1.0] * 2)
    assert conditional.curve({"k": "c", "n": 3}, ()).number == 1
    assert conditional.curve({"k": "c"}, ()).number == 0


def test_points_that_were_not_trained_get_the_nearest_that_is_free() -> None:
    curves = RecordedCurves(POINTS, VALUES, [1.0] * len(POINTS))
    assert curves.curve({"x": 0.2}, ()).number == 20
    assert curves.curve({"x": 0.204}, ()).number == 20
    assert curves.curve({"x": 0.204}, {20}).number == 21
    assert curves.curve({"x": 0.2}, {20}).number == 20
    mixed = RecordedCurves([{"k": "a", "n": 1}, {"k": "b", "n": 9}], [[1.0], [2.0]], [1.0, 1.0])
    assert mixed.curve({"k": "b", "n": 2}, ()).number == 1


@pytest.mark.parametrize("seed", range(5))
def test_places_are_never_exceeded(seed: int) -> None:
    places = random.Random(seed).randint(1, 6)
    outcome = run(
        {"name": "median_stopping", **{k: v for k, v in TIMED.items() if k != "divisor"}}, SimulatedCluster(places)
    )
    assert outcome.slot_seconds <= places * outcome.end + 1e-9
