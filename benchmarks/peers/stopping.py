"""Searches of other packages that stop trials: Optuna's, Syne Tune's and Ray Tune's."""

from __future__ import annotations

import datetime
import logging
import warnings
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.search_peer import FACTOR, METRIC, TIME, Peer


class Optuna(Peer):
    """`pruner`: `halving`, `hyperband`, or none."""

    def __init__(self, space: Mapping[str, Any], longest: int, seed: int, *, model: bool, pruner: str = "") -> None:
        super().__init__(space, longest)
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
        samplers, pruners = optuna.samplers, optuna.pruners
        if pruner == "halving":
            chosen = pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR)
        elif pruner == "hyperband":
            chosen = pruners.HyperbandPruner(min_resource=1, max_resource=longest, reduction_factor=FACTOR)
        else:
            chosen = pruners.NopPruner()
        self._study = optuna.create_study(
            sampler=samplers.TPESampler(seed=seed) if model else samplers.RandomSampler(seed=seed),
            pruner=chosen,
            study_name=f"bench {seed}",  # Hyperband hashes it for a trial's bracket; its default differs each time
        )
        self._last: dict[str, float] = {}

    def _suggested(self, key: str) -> tuple[Any, Mapping[str, Any]]:
        del key
        trial = self._study.ask(self._distributions)
        return trial, trial.params

    def _continues(self, key: str, value: float, epoch: int) -> bool:
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
    """`method`: the name of one of its baselines. BORE alone trains every trial to its end."""

    def __init__(self, space: Mapping[str, Any], longest: int, seed: int, *, method: str) -> None:
        super().__init__(space, longest)
        logging.disable(logging.CRITICAL)
        from syne_tune import config_space
        from syne_tune.optimizer import baselines

        axes = {
            name: config_space.choice(value["vals"])
            if value["type"] == "categorical"
            else config_space.uniform(value["minval"], value["maxval"])
            for name, value in space.items()
        }
        halving = {"time_attr": TIME, "max_t": longest, "reduction_factor": FACTOR} if method.startswith("ASHA") else {}
        self._scheduler = getattr(baselines, method)(axes, metric=METRIC, random_seed=seed, **halving)
        self._last: dict[str, dict[str, Any]] = {}

    def _suggested(self, key: str) -> tuple[Any, Mapping[str, Any]]:
        from syne_tune.backend.trial_status import Trial

        config = dict(self._scheduler.suggest().config)
        trial = Trial(len(self._last), config, datetime.datetime.now())
        self._last[key] = {}
        self._scheduler.on_trial_add(trial)
        return trial, config

    def _continues(self, key: str, value: float, epoch: int) -> bool:
        self._last[key] = {METRIC: value, TIME: epoch}
        return bool(self._scheduler.on_trial_result(self.trials[key], self._last[key]) == "CONTINUE")

    def _complete(self, key: str) -> None:
        if self._last[key]:
            self._scheduler.on_trial_complete(self.trials[key], self._last[key])


class RayTune(Peer):
    """Its ASHA scheduler, which takes any object with a `trial_id` for a trial: no cluster of Ray is started. Points
    are drawn from Ray's own distributions, as its default search does."""

    def __init__(self, space: Mapping[str, Any], longest: int, seed: int) -> None:
        super().__init__(space, longest)
        logging.disable(logging.CRITICAL)
        import numpy as np
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler

        self._random = np.random.RandomState(seed)
        self._axes = {
            name: tune.choice(value["vals"])
            if value["type"] == "categorical"
            else tune.uniform(value["minval"], value["maxval"])
            for name, value in space.items()
        }
        self._scheduler = ASHAScheduler(
            time_attr=TIME, metric=METRIC, mode="min", max_t=longest, grace_period=1, reduction_factor=FACTOR
        )
        self._last: dict[str, dict[str, Any]] = {}

    def _suggested(self, key: str) -> tuple[Any, Mapping[str, Any]]:
        trial = RayTrial(key)
        self._scheduler.on_trial_add(None, trial)
        return trial, {name: axis.sample(random_state=self._random) for name, axis in self._axes.items()}

    def _continues(self, key: str, value: float, epoch: int) -> bool:
        self._last[key] = {METRIC: value, TIME: epoch}
        return bool(self._scheduler.on_trial_result(None, self.trials[key], self._last[key]) == "CONTINUE")

    def _complete(self, key: str) -> None:
        self._scheduler.on_trial_complete(None, self.trials[key], self._last.get(key, {}))


class RayTrial:
    """What Ray's schedulers read of a trial."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id
