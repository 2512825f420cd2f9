"""Searches of other packages that promote points: SMAC's and NePS's, by their ask-and-tell interfaces."""

from __future__ import annotations

import logging
import math
import random
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.search_peer import FACTOR, TIME, PromotingPeer


class Smac(PromotingPeer):
    """Hyperband with random forests. It has no pauses: that a trial continues where it was is in its favour."""

    def __init__(self, space: Mapping[str, Any], longest: int, seed: int) -> None:
        super().__init__(space, longest)
        warnings.simplefilter("ignore")
        from ConfigSpace import Categorical, ConfigurationSpace, Float
        from smac import MultiFidelityFacade, Scenario
        from smac.runhistory import StatusType, TrialValue

        self._value, self._crashed = TrialValue, StatusType.CRASHED
        axes = ConfigurationSpace(seed=seed)
        axes.add(
            Categorical(name, list(range(len(value["vals"]))))
            if value["type"] == "categorical"
            else Float(name, (value["minval"], value["maxval"]))
            for name, value in space.items()
        )
        self._folder = tempfile.TemporaryDirectory(prefix="trainmaster-smac-")  # its scenario writes there
        scenario = Scenario(
            axes, deterministic=True, n_trials=1_000_000, min_budget=1, max_budget=longest, seed=seed,
            output_directory=self._folder.name,
        )  # fmt: skip
        intensifier = MultiFidelityFacade.get_intensifier(scenario, eta=FACTOR)
        design = MultiFidelityFacade.get_initial_design(scenario)
        self._facade = MultiFidelityFacade(
            scenario, _never_called, intensifier=intensifier, initial_design=design,
            logging_level=logging.CRITICAL, overwrite=True,
        )  # fmt: skip

    def _ask(self) -> tuple[Any, Any, Mapping[str, Any], int]:
        question = self._facade.ask()
        point = {
            name: axis["vals"][int(question.config[name])] if axis["type"] == "categorical" else question.config[name]
            for name, axis in self.space.items()
        }
        return question, question.config, point, round(question.budget)

    def _tell(self, question: Any, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            self._facade.tell(question, self._value(cost=math.inf, status=self._crashed), save=False)
        else:
            self._facade.tell(question, self._value(cost=value), save=False)


def _never_called(config: Any, seed: int = 0, budget: float = 0.0) -> float:
    """SMAC reads the signature of what it would optimize, were it not asked and told."""
    raise NotImplementedError((config, seed, budget))  # it asks and is told


class Neps(PromotingPeer):
    """PriorBand on Hyperband's brackets. The tables name no priors: it draws at random, and once a bracket is through
    also near its best point."""

    def __init__(self, space: Mapping[str, Any], longest: int, seed: int) -> None:
        super().__init__(space, longest)
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        import numpy as np
        import torch
        from neps.optimizers.algorithms import priorband
        from neps.optimizers.ask_and_tell import AskAndTell
        from neps.space import SearchSpace
        from neps.space.parameters import HPOCategorical, HPOFloat, HPOInteger

        for sow in (random.seed, np.random.seed, torch.manual_seed):
            sow(seed)
        torch.set_num_threads(1)
        axes: dict[str, Any] = {
            name: HPOCategorical(value["vals"])
            if value["type"] == "categorical"
            else HPOFloat(value["minval"], value["maxval"])
            for name, value in space.items()
        }
        axes[TIME] = HPOInteger(1, longest, is_fidelity=True)
        self._search = AskAndTell(priorband(SearchSpace(axes), eta=FACTOR))

    def _ask(self) -> tuple[Any, Any, Mapping[str, Any], int]:
        trial = self._search.ask()
        name = trial.metadata.id  # of the point, and of the rung
        return trial, name.partition("_")[0], trial.config, int(trial.config[TIME])

    def _tell(self, question: Any, value: float | None) -> None:
        self._search.tell(question, RuntimeError("the trial failed") if value is None else value)
