"""`tpe`: points of a sampler of Optuna (optuna.org), in any search that stops or pauses trials.

Another method, the `rule`, decides how many trials there are and how long each trains; this one chooses their points,
by default with the tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for hyper-parameter
optimization"). What was drawn is stored with its event: another release of Optuna changes no search that was recorded.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from trainmaster.config.searcher import ManyTrials
from trainmaster.config.shapes import Positive
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.axes import Axes, Axis
from trainmaster.master.search.combinations import TRIES, ForbiddenCombinations
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.method import (  # fmt: skip
    ActionQueue,
    Arrival,
    BracketRanking,
    Method,
    Preview,
    RelayedOrders,
    Searcher,
    ValidationReport,
    When,
)
from trainmaster.master.search.methods import searcher_of

MOST_HISTORY = 300  # trials that the sampler sees: the best half of them ever, and the newest
MOST_RUNGS = 100
RULES = ("random", "asha", "async_halving", "adaptive_asha", "median_stopping")
SAMPLERS = {"tpe": "TPESampler", "gp": "GPSampler", "cmaes": "CmaEsSampler", "qmc": "QMCSampler"}


class _Past(NamedTuple):
    """A trial as the sampler sees it: its last value, None where there is none, and its time."""

    place: list[float]
    value: float | None
    time: float
    state: str  # of optuna.trial.TrialState


class _Suggesting(RelayedOrders):
    """The orders of a rule, whose points come from elsewhere. `cut`: gets the trials that it stops or pauses."""

    def __init__(self, orders: ActionQueue, create: Callable[[str], int], cut: set[int]) -> None:
        super().__init__(orders)
        self._create, self._cut = create, cut

    def create(self, why: str, hparams: Mapping[str, Any] | None = None, parent: int | None = None) -> int:
        return self._create(why) if hparams is None else super().create(why, hparams, parent)

    def stop(self, trial: int, why: str) -> None:
        super().stop(trial, why)
        self._cut.add(trial)

    def pause(self, trial: int, why: str) -> None:
        super().pause(trial, why)
        self._cut.add(trial)

    def resume(self, trial: int, why: str) -> None:
        super().resume(trial, why)
        self._cut.discard(trial)


class Tpe(Method):
    """A rule, and a sampler that sees all that the trials reported."""

    def __init__(
        self,
        rule: Method,
        sampler: str,
        max_time: float,
        space: Mapping[str, Any],
        first: Sequence[Mapping[str, Any]] = (),
        forbidden: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._rule, self._sampler, self._max_time = rule, sampler, max_time
        self._axes, self._first, self._forbidden = Axes(space), first, ForbiddenCombinations(forbidden)
        self.max_concurrent = rule.max_concurrent
        self.other_metrics, self.sees_spending = rule.other_metrics, rule.sees_spending
        self._places: list[list[float]] = []  # by trial
        self._seen: dict[int, tuple[float | None, float]] = {}  # by trial: last value, None if unusable, and its time
        self._over: set[int] = set()
        self._cut: set[int] = set()  # stopped or paused by the rule

    def begin(self, orders: ActionQueue) -> None:
        self._rule.begin(self._suggesting(orders))

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        self._seen[trial] = report.value, report.time
        self._rule.validated(trial, report, self._suggesting(orders))

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        self._over.add(trial)
        if reason is not None and reason.infeasible:
            self._seen[trial] = None, 0.0
        self._rule.ended(trial, reason, self._suggesting(orders))

    def _suggesting(self, orders: ActionQueue) -> ActionQueue:
        def create(why: str) -> int:
            place = orders.draw(self._drawn)
            if len(self._places) < len(self._first):
                place = self._axes.moved(place, self._first[len(self._places)])
            self._places.append(place)
            return orders.create(why.replace("random points", f"points of {self._sampler}"), self._axes.point(place))

        return _Suggesting(orders, create, self._cut)

    def _drawn(self, stream: RandomState) -> list[float]:
        study = _study(self._sampler, stream.bits32(), self._axes.all, self._history())
        for _ in range(TRIES):
            place = _suggested(study, self._axes.all)
            if self._forbidden.allows(self._axes.point(place)):
                return place
        raise SearchError(f"searcher.forbidden leaves too little: none of {TRIES} points that were drawn is allowed")

    def _history(self) -> list[_Past]:
        trials: Sequence[int] = range(len(self._places))
        if len(trials) > MOST_HISTORY:
            judged = sorted((value, trial) for trial, (value, _) in self._seen.items() if value is not None)
            best = {trial for _, trial in judged[: MOST_HISTORY // 2]}
            newest = [trial for trial in reversed(trials) if trial not in best][: MOST_HISTORY - len(best)]
            trials = sorted({*best, *newest})
        return [self._past(trial) for trial in trials]

    def _past(self, trial: int) -> _Past:
        value, time = self._seen.get(trial, (None, 0.0))
        if value is None:
            state = "FAIL" if trial in self._over else "RUNNING"
        elif trial in self._cut and time < self._max_time:
            state = "PRUNED"
        else:
            state = "COMPLETE" if trial in self._over else "RUNNING"
        return _Past(self._places[trial], value, time, state)

    def progress(self, running: Mapping[int, float], ended: int) -> float:
        return self._rule.progress(running, ended)

    def describe(self) -> str:
        return self._rule.describe()

    def rankings(self) -> Sequence[BracketRanking]:
        return self._rule.rankings()

    def arrivals(self, when: When) -> Sequence[Sequence[Arrival]]:
        return self._rule.arrivals(when)

    def state(self) -> dict[str, Any]:
        return {
            "rule": self._rule.state(),
            "places": self._places,
            "seen": [[trial, value, time] for trial, (value, time) in self._seen.items()],
            "over": sorted(self._over),
            "cut": sorted(self._cut),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._rule.load(state["rule"])
        self._places = [[float(value) for value in place] for place in state["places"]]
        self._seen = {
            int(trial): (None if value is None else float(value), float(time)) for trial, value, time in state["seen"]
        }
        self._over, self._cut = set(state["over"]), set(state["cut"])


def _study(sampler: str, seed: int, axes: Sequence[Axis], history: Sequence[_Past]) -> Any:
    """Return a study of Optuna with these trials."""
    optuna = _optuna(sampler)
    options: dict[str, Any] = {"seed": seed}
    if sampler == "tpe":
        options |= {"multivariate": True, "group": True, "constant_liar": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # multivariate TPE is called experimental
        study = optuna.create_study(sampler=getattr(optuna.samplers, SAMPLERS[sampler])(**options))
    spaces = {f"{at}": _distribution(axis) for at, axis in enumerate(axes)}
    for past in history:
        pairs = zip(axes, past.place, strict=True)
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[past.state],
                params={f"{at}": _inward(axis, place) for at, (axis, place) in enumerate(pairs)},
                distributions=spaces,
                value=past.value if past.state == "COMPLETE" else None,
                intermediate_values={} if past.value is None else {int(past.time): past.value},
            )
        )
    return study


def _optuna(sampler: str) -> Any:
    """Import what a sampler needs. Raises SearchError where a package is missing."""
    try:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # QMC is called experimental
            getattr(optuna.samplers, SAMPLERS[sampler])(seed=0)
    except ImportError as error:
        raise SearchError(
            f"the sampler {sampler} needs the package {error.name or 'optuna'}, which the master does not have: its "
            "administrator can install trainmaster[optuna]"
        ) from None
    return optuna


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.categories is None:
        return FloatDistribution(0.0, 1.0)
    return CategoricalDistribution(range(len(axis.categories)))


def _inward(axis: Axis, place: float) -> Any:
    return int(place) if axis.categories is not None else min(max(place, 0.0), 1.0)


def _suggested(study: Any, axes: Sequence[Axis]) -> list[float]:
    trial = study.ask({f"{at}": _distribution(axis) for at, axis in enumerate(axes)})
    return [float(trial.params[f"{at}"]) for at in range(len(axes))]


class TpeSearcher(ManyTrials):
    """The section of `tpe`."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {"max_trials": "how many trials there are in all"}

    name: Literal["tpe"]
    max_trials: Positive | None = None
    sampler: Literal["tpe", "gp", "cmaes", "qmc"] = "tpe"
    rule: dict[str, Any] = Field(default_factory=lambda: {"name": "random"})
    """The section of the searcher that decides how long trials train, without what this section says already."""

    def method(self, hparams: Mapping[str, Any]) -> Method:
        _optuna(self.sampler)
        most = self.rule.get("max_time")
        return Tpe(
            self._rule().method(hparams),
            self.sampler,
            float(most) if most else math.inf,
            hparams,
            self.first_points or (),
            self.forbidden or (),
        )

    def preview(self, hparams: Mapping[str, Any]) -> Preview:
        return self._rule().preview(hparams)

    def _rule(self) -> Searcher:
        """Return the searcher of the rule. Raises SearchError."""
        if self.rule.get("name") not in RULES:
            raise SearchError(f"searcher.rule.name must be one of {', '.join(RULES)}")
        said = sorted(self.rule.keys() & ManyTrials.model_fields.keys() - {"name"} | self.rule.keys() & {"max_trials"})
        if said:
            raise SearchError(f"searcher.rule.{said[0]} belongs one level up: write searcher.{said[0]}")
        own = {
            key: getattr(self, key) for key in ("metric", "smaller_is_better", "max_trials", "max_concurrent_trials")
        }
        try:
            searcher = searcher_of({**self.rule, **own})
        except SearchError as error:
            raise SearchError(str(error).replace("searcher.", "searcher.rule.")) from None
        brackets = getattr(searcher, "bracket_rungs", None) or []
        rungs = [getattr(searcher, key, None) or 0 for key in ("num_rungs", "max_rungs")]
        if max([*rungs, len(brackets), *brackets]) > MOST_RUNGS:  # before any of them is made
            raise SearchError(
                f"searcher.rule: a bracket may have {MOST_RUNGS} rungs, and there may be as many brackets"
            )
        return searcher
