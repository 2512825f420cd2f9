"""Previews a search: how many trials it would run, and for how long, before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.master.search.hyperparameters import sample
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.methods import searcher_of


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
    named = searcher_of(searcher)
    named.method(hparams)
    sample(hparams, RandomState(seed))
    return list(named.preview(hparams))
