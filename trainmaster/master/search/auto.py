"""`auto`: the recommended search. It promotes trials as `asha` does, and learns where good points are.

Points are drawn near the best of those that have come far enough to be compared (`density`), a part of them anywhere.
Until there are enough, those of earlier experiments take their place (`learn_from`), whose best points are tried
first. A point near the user's `prior` is drawn as often as one anywhere. With slot-hours or a deadline, it begins
nothing that does not fit any more (`budgeted`), and finishes the best trial rather than begin others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainmaster.config.deadlines import Deadline, seconds_of
from trainmaster.config.shapes import Positive, Section
from trainmaster.master.search.asha import AshaSearcher
from trainmaster.master.search.async_halving import WORST, Goal
from trainmaster.master.search.axes import Axes, Coordinates
from trainmaster.master.search.budgeted import BudgetedAsha
from trainmaster.master.search.combinations import ForbiddenCombinations
from trainmaster.master.search.density import Density, best_of, flat, near_priors
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.method import ActionQueue, Method, Preview
from trainmaster.master.search.spending import Spending

ANYWHERE = 0.2  # the part of all points that is drawn without regard to what other trials reached
GOOD = 0.25  # the part of a rung that points are drawn near to
MOST_GOOD, MOST_BAD = 20, 60  # trials that the model looks at, so that a point costs the same after 10,000 of them
LEAST = 6  # trials that must be on a rung before the model learns from it; more with many hyperparameters
MOST_KNOWN = 200  # trials of earlier experiments
EARLIEST = 0.1  # of `max_time`: what trials report before tells more of their speed than of their quality


def _is_none(value: Any) -> bool:
    return value is None


class Auto(BudgetedAsha):
    """`Asha` whose points are drawn by what is known."""

    def __init__(
        self,
        goal: Goal,
        space: Mapping[str, Any],
        rungs: int,
        divisor: float,
        max_trials: int | None,
        max_concurrent: int,
        first: Sequence[Mapping[str, Any]] = (),
        forbidden: Sequence[Mapping[str, Any]] = (),
        spending: Spending | None = None,
        known: Sequence[tuple[Mapping[str, Any], float]] = (),
    ) -> None:
        super().__init__(goal, rungs, divisor, max_trials, max_concurrent, spending)
        self._axes, self._first, self._forbidden = Axes(space), first, ForbiddenCombinations(forbidden)
        ranked = sorted(((rank, self._axes.placed(point)) for point, rank in known), key=lambda pair: pair[0])
        self._known = [(rank, place) for rank, place in ranked if place is not None]
        self._winners = [place for rank, place in self._known if rank == 0]
        self._places: dict[int, list[float]] = {}  # by trial
        self._made: set[tuple[Any, ...]] = set()  # points

    def _begin_trial(self, orders: ActionQueue) -> int:
        place, how = orders.draw(self._drawn)
        if not self._budget.created:  # the user's own guess, before anything else
            place = [self._axes.priors.get(at, value) for at, value in enumerate(place)]
        later = self._budget.created - len(self._first)
        if later < 0:
            place = self._axes.moved(place, self._first[self._budget.created])
        elif later < len(self._winners) and self._is_new(self._winners[later]):
            place, how = self._winners[later], "the best of an earlier experiment"
        trial = orders.create(f"{self._budget.spend()} points: {how}", self._axes.point(place))
        self._places[trial] = place
        self._made.add(self._axes.key(place))
        return trial

    def _drawn(self, stream: RandomState) -> list[Any]:
        axes = self._axes.all
        good, bad = self._judged(stream)
        if not good or not axes or stream.unit() < ANYWHERE:
            if self._axes.priors and stream.below(2):
                return [self._allowed(lambda: near_priors(axes, self._axes.priors, stream)), "near the prior"]
            return [self._allowed(lambda: flat(axes, stream)), "anywhere"]
        weights = [float(len(good) - at) for at in range(len(good))]
        models = Density(axes, good, weights), Density(axes, bad, [1.0] * len(bad))
        place = best_of(*models, self._is_new, stream)
        if place is None:
            return [self._allowed(lambda: flat(axes, stream)), "anywhere"]
        return [place, f"near the best {len(good)}"]

    def _is_new(self, place: Coordinates) -> bool:
        return self._axes.key(place) not in self._made and self._forbidden.allows(self._axes.point(place))

    def _allowed(self, draw: Callable[[], list[float]]) -> list[float]:
        places: list[list[float]] = []

        def point() -> dict[str, Any]:
            places.append(draw())
            return self._axes.point(places[-1])

        self._forbidden.until_allowed(point)
        return places[-1]

    def _judged(self, stream: RandomState) -> tuple[list[list[float]], list[list[float]]]:
        """Return the places of good trials, the best first, and of some others, of the highest rung on which there are
        enough to compare; none before that."""
        least = max(len(self._axes.all) + 1, LEAST)
        high = next((rung for rung in reversed(self._rungs) if len(rung.trials) >= least), None)
        if high is None or high.units < self._goal.max_time * EARLIEST:
            known = [place for rank, place in self._known if rank <= GOOD][:MOST_GOOD]
            return known, [place for rank, place in self._known if rank > GOOD][-MOST_BAD:]
        above = [rung.trials[0] for rung in reversed(self._rungs) if rung.units > high.units and rung.trials]
        wanted = min(max(round(GOOD * len(high.trials)), 3), MOST_GOOD)
        fine = [trial for trial, value in zip(high.trials, high.values, strict=True) if value < WORST]
        good = dict.fromkeys([*above, *fine[:wanted]])
        there = set(high.trials)
        others = [trial for trial in high.trials if trial not in good][-MOST_BAD:]
        rest = [trial for trial in self._rungs[0].trials if trial not in there]
        while len(rest) > MOST_BAD:
            rest[stream.below(len(rest))] = rest[-1]
            rest.pop()
        return [self._places[trial] for trial in good], [self._places[trial] for trial in (*others, *rest)]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "places": [[trial, *place] for trial, place in self._places.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._places = {int(trial): [float(value) for value in place] for trial, *place in state["places"]}
        self._made = {self._axes.key(place) for place in self._places.values()}


class KnownTrial(Section):
    """A trial of an earlier experiment. `rank`: 0 for the best of its experiment, towards 1 for the worst."""

    hparams: dict[str, Any]
    rank: float = Field(ge=0, le=1, allow_inf_nan=False)


class AutoSearcher(AshaSearcher):
    """The section of `auto`."""

    contract_version: ClassVar[int] = 2
    required: ClassVar[Mapping[str, str]] = {
        key: what for key, what in AshaSearcher.required.items() if key != "max_trials"
    }
    one_of: ClassVar[Mapping[str, str]] = {
        "max_trials": "how many trials there are in all",
        "slot_hours": "hours of slots that they may use",
        "deadline": "when the search must be over",
    }

    name: Literal["auto"]  # type: ignore[assignment]
    divisor: float = Field(default=3.0, gt=1)
    slot_hours: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False, exclude_if=_is_none)
    deadline: Deadline | None = Field(default=None, exclude_if=_is_none)
    expected_wait: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False, exclude_if=_is_none)
    """Seconds that a job of this pool waits in the queue; left out: as its last jobs did."""

    learn_from: list[Positive] | None = Field(default=None, max_length=20, exclude_if=_is_none)
    """Earlier experiments (numbers) on the same model, whose good points are where this search looks first."""
    known: list[KnownTrial] | None = Field(default=None, max_length=MOST_KNOWN, exclude_if=_is_none)
    """Their trials, which the master fills in."""

    def method(self, hparams: Mapping[str, Any]) -> Method:
        return Auto(
            self.goal,
            hparams,
            self.rungs,
            self.divisor,
            self.max_trials,
            self.max_concurrent_trials,
            self.first_points or (),
            self.forbidden or (),
            self._spending(),
            [(each.hparams, each.rank) for each in self.known or ()],
        )

    def _spending(self) -> Spending | None:
        if self.slot_hours is None and self.deadline is None:
            return None
        return Spending(
            None if self.slot_hours is None else self.slot_hours * 3600,
            None if self.deadline is None else seconds_of(self.deadline),
            self.expected_wait or 0.0,
        )

    def preview(self, hparams: Mapping[str, Any]) -> Preview:
        return [] if self.max_trials is None else super().preview(hparams)
