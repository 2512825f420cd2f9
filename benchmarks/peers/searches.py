"""Searches of other packages, as the simulator tells them.

Run with the Python of an environment that has them (`python -m benchmarks.peers.searches NAME`): reads a task from its
input, runs the named search on it for each seed, and prints what each found.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.promoting import Neps, Smac
from benchmarks.peers.search_peer import METRIC, TIME, Peer, PromotingPeer, TimedSearch
from benchmarks.peers.stopping import Optuna, RayTune, SyneTune
from trainmaster.master.search.simulation import SimulatedCluster, Simulation
from trainmaster.master.values.search import SearchGoal


@dataclass(frozen=True)
class Entrant:
    """`make`: of a space, the epochs of a full trial and a seed. `environment`: the variable that names the Python that
    has the package. `random`: draws points at random, whatever it found. `costly`: runs on few seeds."""

    make: Callable[[Mapping[str, Any], int, int], Peer | PromotingPeer]
    environment: str = "TRAINMASTER_SEARCH_PEERS"
    random: bool = False
    costly: bool = False


def _optuna(*, model: bool, pruner: str = "") -> Entrant:
    return Entrant(
        lambda space, longest, seed: Optuna(space, longest, seed, model=model, pruner=pruner), random=not model
    )


def _syne_tune(method: str, *, drawn: bool = False) -> Entrant:
    return Entrant(
        lambda space, longest, seed: SyneTune(space, longest, seed, method=method), random=drawn, costly=not drawn
    )


PEERS: dict[str, Entrant] = {
    "Optuna random": _optuna(model=False),
    "Optuna random + halving": _optuna(model=False, pruner="halving"),
    "Optuna random + Hyperband": _optuna(model=False, pruner="hyperband"),
    "Syne Tune ASHA": _syne_tune("ASHA", drawn=True),
    "Ray Tune ASHA": Entrant(RayTune, random=True),
    "Optuna TPE": _optuna(model=True),
    "Optuna TPE + halving": _optuna(model=True, pruner="halving"),
    "Optuna TPE + Hyperband": _optuna(model=True, pruner="hyperband"),
    "NePS PriorBand": Entrant(Neps, "TRAINMASTER_SEARCH_PEERS_NEPS", costly=True),
    "Syne Tune BORE": _syne_tune("BORE"),
    "Syne Tune ASHA+BORE": _syne_tune("ASHABORE"),
    "SMAC Hyperband": Entrant(Smac, costly=True),
}


def run(name: str, task: Any, workers: int, seconds: float, seed: int, deaths: float) -> tuple[Any, TimedSearch]:
    """Return what a peer found, and what it computed for that."""
    before = time.process_time()
    peer = PEERS[name].make(task.space, task.epochs, seed)
    actions = peer.begin(workers)
    timed = TimedSearch(peer, actions, time.process_time() - before)
    goal = SearchGoal(metric=METRIC, time_metric=TIME)
    simulation = Simulation(timed, actions, goal, task.curves(), SimulatedCluster(workers, deaths=deaths), seed)
    return simulation.run(seconds), timed


def main() -> None:
    name = sys.argv[1]
    task, cells, seeds, deaths, until = pickle.load(sys.stdin.buffer)
    run(name, task, 1, task.full / task.epochs, 0, 0.0)  # what is imported at first use is no cost of a suggestion
    for seed in seeds:
        for workers, seconds in cells:
            if time.time() < until:
                outcome, timed = run(name, task, workers, seconds, seed, deaths)
                print(json.dumps([workers, seed, outcome.bests, timed.cpu, timed.created]), flush=True)


if __name__ == "__main__":
    main()
