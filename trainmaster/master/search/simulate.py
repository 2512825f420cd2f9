"""What a search would cost, before it is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .actions import SearchError
from .adaptive_asha import Bracket
from .async_halving import rung_units
from .hyperparameters import Grid, sample
from .mersenne import RandomState
from .methods import Section, make_method


def simulate(searcher: Mapping[str, Any], hparams: Mapping[str, Any], seed: int = 0) -> list[tuple[int, int | None]]:
    """How many trials train for how long, the shortest first.

    Args:
        searcher: the resolved `searcher` section.
        hparams: the resolved `hyperparameters` section.
        seed: for the one point that is drawn to see that the space can be read.

    Returns:
        Pairs (number of trials, units of the time metric); None for units means that they train to their end.

    Raises:
        SearchError: as `Search.start`.
    """
    make_method(searcher, hparams)
    sample(hparams, RandomState(seed))
    section = Section(searcher)
    match section.name:
        case "single":
            return [(1, None)]
        case "random":
            return [(section.max_trials, None)]
        case "grid":
            return [(Grid(hparams).size, None)]
        case "async_halving":
            brackets = [Bracket(section.whole("num_rungs", least=1), section.max_trials, 0)]
        case "adaptive_asha":
            brackets = section.brackets
        case other:
            raise SearchError(f"the searcher {other} cannot be previewed")
    return _halving(brackets, section.divisor, section.goal.max_time)


def _halving(brackets: Sequence[Bracket], divisor: float, max_time: int) -> list[tuple[int, int | None]]:
    """Every rung full, the best 1/divisor (at least one) of it in the next."""
    stops: Counter[int] = Counter()
    for bracket in brackets:
        trials = bracket.max_trials
        units = rung_units(bracket.rungs, divisor, max_time)
        for length in units[:-1]:
            on = max(int(trials / divisor), 1)
            stops[length] += trials - on
            trials = on
        stops[units[-1]] += trials
    return [(count, length) for length, count in sorted(stops.items()) if count]
