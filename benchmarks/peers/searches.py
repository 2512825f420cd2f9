"""Searches of other packages, as the simulator tells them: Optuna 5 and Syne Tune 0.16.

Run with the Python of an environment that has them (`python -m benchmarks.peers.searches NAME`): reads a task as JSON
from its input, runs the named search on it for each seed, and prints what each found.
"""

from __future__ import annotations

import datetime
import json
import pickle
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.master.search.actions import Action, Create, ExitReason, StopTrial
from trainmaster.master.search.simulation import SimulatedCluster, Simulation
from trainmaster.master.values.search import SearchGoal

METRIC, TIME, LONGEST, FACTOR = "loss", "epochs", 81, 3


class Peer:
    """Base class: one new trial for each that is over."""

    def __init__(self) -> None:
        self.trials: dict[str, Any] = {}
        self.cpu = 0.0

    def begin(self, workers: int) -> list[Action]:
        return [self._created() for _ in range(workers)]

    def validation(self, request_id: str, metrics: Mapping[str, Any], *_: Any, **__: Any) -> list[Action]:
        if request_id not in self.trials:
            return []
        if self._goes_on(request_id, float(metrics[METRIC]), int(metrics[TIME])):
            return []
        del self.trials[request_id]
        return [StopTrial(request_id, "stopped"), self._created()]

    def exited(self, request_id: str, **_: Any) -> list[Action]:
        if request_id not in self.trials:
            return []
        self._complete(request_id)
        del self.trials[request_id]
        return [self._created()]

    def exited_early(self, request_id: str, reason: ExitReason, **_: Any) -> list[Action]:
        del reason
        return self.exited(request_id)

    def _created(self) -> Action:
        before = time.process_time()
        key = str(uuid.uuid4())
        self.trials[key], point = self._suggested(key)
        self.cpu += time.process_time() - before
        return Create(key, point, 0, "suggested")

    def _suggested(self, key: str) -> tuple[Any, dict[str, Any]]:
        raise NotImplementedError  # each package has its own

    def _goes_on(self, key: str, value: float, epoch: int) -> bool:
        raise NotImplementedError  # each package has its own

    def _complete(self, key: str) -> None:
        raise NotImplementedError  # each package has its own


class Optuna(Peer):
    """`prune`: with its own successive halving."""

    def __init__(self, space: Mapping[str, Any], seed: int, *, model: bool, prune: bool) -> None:
        super().__init__()
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        self._optuna = optuna
        self._distributions = {
            name: optuna.distributions.CategoricalDistribution(value["vals"])
            if value["type"] == "categorical"
            else optuna.distributions.FloatDistribution(value["minval"], value["maxval"])
            for name, value in space.items()
        }
        samplers = optuna.samplers
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR)
        self._study = optuna.create_study(
            sampler=samplers.TPESampler(seed=seed) if model else samplers.RandomSampler(seed=seed),
            pruner=pruner if prune else optuna.pruners.NopPruner(),
        )
        self._last: dict[str, float] = {}

    def _suggested(self, key: str) -> tuple[Any, dict[str, Any]]:
        del key
        trial = self._study.ask(self._distributions)
        return trial, dict(trial.params)

    def _goes_on(self, key: str, value: float, epoch: int) -> bool:
        trial = self.trials[key]
        self._last[key] = value
        trial.report(value, epoch)
        if not trial.should_prune():
            return True
        self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
        return False

    def _complete(self, key: str) -> None:
        if key in self._last:
            self._study.tell(self.trials[key], self._last[key])


class SyneTune(Peer):
    def __init__(self, space: Mapping[str, Any], seed: int, *, bore: bool) -> None:
        super().__init__()
        import logging

        logging.disable(logging.CRITICAL)
        from syne_tune import config_space
        from syne_tune.optimizer import baselines

        axes = {
            name: config_space.choice(value["vals"])
            if value["type"] == "categorical"
            else config_space.uniform(value["minval"], value["maxval"])
            for name, value in space.items()
        }
        make = baselines.ASHABORE if bore else baselines.ASHA
        self._scheduler = make(
            axes, metric=METRIC, time_attr=TIME, max_t=LONGEST, random_seed=seed, reduction_factor=FACTOR
        )
        self._last: dict[str, dict[str, Any]] = {}

    def _suggested(self, key: str) -> tuple[Any, dict[str, Any]]:
        from syne_tune.backend.trial_status import Trial

        config = dict(self._scheduler.suggest().config)
        trial = Trial(len(self._last), config, datetime.datetime.now())
        self._last[key] = {}
        self._scheduler.on_trial_add(trial)
        return trial, config

    def _goes_on(self, key: str, value: float, epoch: int) -> bool:
        self._last[key] = {METRIC: value, TIME: epoch}
        return bool(self._scheduler.on_trial_result(self.trials[key], self._last[key]) == "CONTINUE")

    def _complete(self, key: str) -> None:
        if self._last[key]:
            self._scheduler.on_trial_complete(self.trials[key], self._last[key])


PEERS: dict[str, Callable[[Mapping[str, Any], int], Peer]] = {
    "Optuna TPE": lambda space, seed: Optuna(space, seed, model=True, prune=False),
    "Optuna TPE + halving": lambda space, seed: Optuna(space, seed, model=True, prune=True),
    "Optuna random + halving": lambda space, seed: Optuna(space, seed, model=False, prune=True),
    "Syne Tune ASHA": lambda space, seed: SyneTune(space, seed, bore=False),
    "Syne Tune ASHA+BORE": lambda space, seed: SyneTune(space, seed, bore=True),
}


def run(name: str, task: Any, workers: int, seconds: float, seed: int, deaths: float) -> tuple[Any, float]:
    """Return what a peer found, and the CPU seconds of a suggestion."""
    peer = PEERS[name](task.space, seed)
    goal = SearchGoal(metric=METRIC, time_metric=TIME)
    simulation = Simulation(
        peer, peer.begin(workers), goal, task.curves(), SimulatedCluster(workers, deaths=deaths), seed
    )
    outcome = simulation.run(seconds)
    return outcome, peer.cpu / max(len(outcome.trained), 1)


def main() -> None:
    name = sys.argv[1]
    task, cells, seeds, deaths = pickle.load(sys.stdin.buffer)
    for workers, seconds in cells:
        for seed in range(seeds):
            outcome, cpu = run(name, task, workers, seconds, seed, deaths)
            print(json.dumps([workers, seed, outcome.bests, cpu]), flush=True)


if __name__ == "__main__":
    main()
