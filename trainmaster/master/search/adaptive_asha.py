"""`adaptive_asha`: several ASHA brackets side by side, from eager to patient early stopping.

How many rungs each bracket has, how many trials and how many at a time, is Determined 0.38's arithmetic, down
to the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from trainmaster.config.shapes import Positive, Whole
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.async_halving import AsyncHalving, Goal, HalvingSearcher
from trainmaster.master.search.method import (
    ActionQueue,
    Arrival,
    BracketRanking,
    Method,
    Preview,
    RelayedOrders,
    ValidationReport,
    When,
)

MOST_RUNGS = 100  # that the search chooses by itself, of a divisor that is hardly above 1


@dataclass(frozen=True)
class Bracket:
    """The size of one bracket."""

    rungs: int
    max_trials: int
    max_concurrent: int


def make_brackets(
    mode: str,
    max_time: int,
    divisor: float,
    max_trials: int,
    max_concurrent: int,
    max_rungs: int,
    bracket_rungs: Sequence[int] = (),
) -> list[Bracket]:
    """Return the brackets of an adaptive search, the one with the most rungs first."""
    rungs = sorted(bracket_rungs, reverse=True)
    if not rungs:
        # Logarithms in doubles, as upstream: whole powers may come out one lower (243 = 3**5 gives 4).
        by_time = int(math.log(max_time) / math.log(divisor)) + 1
        by_trials = int(math.log(max_trials) / math.log(divisor)) + 1
        most = min(max_rungs, by_time, by_trials, MOST_RUNGS)
        least = {"conservative": 1, "standard": (most - 1) // 2 + 1, "aggressive": most}[mode]
        rungs = list(range(most, least - 1, -1))
    try:
        trials = bracket_trials(max_trials, divisor, rungs)
    except OverflowError:
        raise SearchError(
            f"searcher: brackets of {rungs[0]} rungs with the divisor {divisor:g} are too large"
        ) from None
    rungs = rungs[: len(trials)]
    concurrent = bracket_concurrency(max_concurrent, divisor, trials)
    return [Bracket(*sizes) for sizes in zip(rungs, trials, concurrent, strict=True)]


def bracket_trials(max_trials: int, divisor: float, rungs: Sequence[int]) -> list[int]:
    """Trials per bracket, `max_trials` in all. Brackets that would have none are left out (at the end)."""
    rungs = rungs[:max_trials]
    weights = [divisor ** (r - 1) / r for r in rungs]
    trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    while sum(trials) > max_trials:  # the least of one each can be too many for a few trials
        trials[trials.index(max(trials))] -= 1
    return trials


def bracket_concurrency(max_concurrent: int, divisor: float, trials: Sequence[int]) -> list[int]:
    """Trials at a time per bracket, at least one each."""
    if max_concurrent == 0:
        return [max(trials[-1], int(divisor))] * len(trials)
    share, rest = divmod(max(max_concurrent, len(trials)), len(trials))
    return [share + (i < rest) for i in range(len(trials))]


class AdaptiveAsha(Method):
    """Runs the brackets. When there are more of them than trials may run at a time, the later ones wait until a place
    is free; `max_concurrent` 0 leaves each bracket its own limit."""

    def __init__(self, goal: Goal, divisor: float, brackets: Sequence[Bracket], max_concurrent: int) -> None:
        self._halvings = [AsyncHalving(goal, b.rungs, divisor, b.max_trials, b.max_concurrent) for b in brackets]
        self.max_concurrent = max_concurrent or sum(h.max_concurrent for h in self._halvings)
        self._begun = 0  # brackets that have trials
        self._bracket_of: list[int] = []  # by trial

    def begin(self, orders: ActionQueue) -> None:
        self._begin_brackets(orders)

    def _begin_brackets(self, orders: ActionQueue) -> None:
        while self._begun < len(self._halvings) and self._room() > 0:
            self._begun += 1
            self._halvings[self._begun - 1].begin(self._labelled(self._begun - 1, orders))

    def _room(self) -> int:
        return self.max_concurrent - sum(halving.running for halving in self._halvings)

    def _labelled(self, bracket: int, orders: ActionQueue) -> _BracketOrders:
        return _BracketOrders(bracket, len(self._halvings), self._bracket_of, orders)

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:
        bracket = self._bracket_of[trial]
        self._halvings[bracket].validated(trial, report, self._labelled(bracket, orders))
        self._begin_brackets(orders)

    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        bracket = self._bracket_of[trial]
        self._halvings[bracket].ended(trial, reason, self._labelled(bracket, orders))
        self._begin_brackets(orders)

    def progress(self, _running: Mapping[int, float], _ended: int) -> float:
        return sum(halving.fraction() for halving in self._halvings) / len(self._halvings)

    def describe(self) -> str:
        if len(self._halvings) == 1:
            return self._halvings[0].describe()
        return " | ".join(
            f"bracket {i + 1} of {len(self._halvings)}: " + (halving.describe() if i < self._begun else "waiting")
            for i, halving in enumerate(self._halvings)
        )

    def rankings(self) -> Sequence[BracketRanking]:
        members: list[list[int]] = [[] for _ in self._halvings]
        for trial, bracket in enumerate(self._bracket_of):
            members[bracket].append(trial)
        return [halving.bracket(trials) for halving, trials in zip(self._halvings, members, strict=True)]

    def arrivals(self, when: When) -> Sequence[Sequence[Arrival]]:
        return [halving.bracket_arrivals(when) for halving in self._halvings]

    def state(self) -> dict[str, Any]:
        return {
            "brackets": [halving.state() for halving in self._halvings],
            "begun": self._begun,
            "bracket_of": self._bracket_of,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        for halving, stored in zip(self._halvings, state["brackets"], strict=True):
            halving.load(stored)
        self._begun = int(state["begun"])
        self._bracket_of = list(state["bracket_of"])


class _BracketOrders(RelayedOrders):
    """Records each trial's bracket, and names it in the reasons."""

    def __init__(self, bracket: int, brackets: int, bracket_of: list[int], orders: ActionQueue) -> None:
        super().__init__(orders)
        self._bracket, self._brackets, self._bracket_of = bracket, brackets, bracket_of

    def create(self, why: str, hparams: Mapping[str, Any] | None = None, parent: int | None = None) -> int:
        trial = super().create(self._in_words(why), hparams, parent)
        self._bracket_of.append(self._bracket)
        return trial

    def stop(self, trial: int, why: str) -> None:
        super().stop(trial, self._in_words(why))

    def pause(self, trial: int, why: str) -> None:
        super().pause(trial, self._in_words(why))

    def resume(self, trial: int, why: str) -> None:
        super().resume(trial, self._in_words(why))

    def _in_words(self, why: str) -> str:
        return why if self._brackets == 1 else f"bracket {self._bracket + 1}, {why}"


class AdaptiveAshaSearcher(HalvingSearcher):
    """The section of `adaptive_asha`."""

    name: Literal["adaptive_asha"]
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    max_rungs: Positive = 5
    bracket_rungs: list[Annotated[Whole, Field(ge=1)]] = Field(default_factory=list)

    @property
    def brackets(self) -> list[Bracket]:
        """The sizes of the brackets."""
        return make_brackets(
            self.mode,
            self.goal.max_time,
            self.divisor,
            self.trials,
            self.max_concurrent_trials,
            self.max_rungs,
            self.bracket_rungs,
        )

    def method(self, _hparams: Mapping[str, Any]) -> Method:
        return AdaptiveAsha(self.goal, self.divisor, self.brackets, self.max_concurrent_trials)

    def preview(self, _hparams: Mapping[str, Any]) -> Preview:
        return self.preview_of((bracket.rungs, bracket.max_trials) for bracket in self.brackets)
