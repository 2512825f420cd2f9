"""Checks the size of a search before any part of it is created."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.config.deadlines import seconds_of
from trainmaster.config.limits import Limits
from trainmaster.config.searcher import takes_grid
from trainmaster.master.search import SearchError
from trainmaster.master.search.hyperparameters import axis_lengths
from trainmaster.master.search.methods import make_method
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.errors import Invalid
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.search import SearchGoal

MOST_RUNGS = 100  # with a divisor above 1 more than any training time allows


def refuse_excess(limits: Limits, config: StoredConfig) -> None:
    """Raise Invalid for a complete configuration whose search is larger than the site allows, or cannot be begun."""
    searcher, space = config.searcher, config.hyperparameters
    try:
        for sentence in _excesses(limits, searcher, space):
            raise Invalid(sentence)
        method = make_method(searcher.section, space)  # small by now
    except SearchError as error:
        raise Invalid(f"searcher: {error}") from None
    if excess := limits.over(
        "trials_at_once", method.max_concurrent, "searcher: {} trials at the same time are wanted"
    ):
        raise Invalid(excess)


def refuse_late(config: StoredConfig, at: dt.datetime) -> None:
    """Raise Invalid for a search whose deadline is over before it begins."""
    deadline = config.searcher.deadline
    if deadline is not None and seconds_of(deadline) <= epoch(at):
        raise Invalid(f"searcher.deadline: {deadline} is in the past; give a later one.")


def _excesses(limits: Limits, searcher: SearchGoal, space: Mapping[str, Any]) -> Iterator[str]:
    if excess := limits.over("hyperparameters", sum(1 for _ in _names(space)), "hyperparameters: there are {} names"):
        yield excess
    if excess := limits.over("trials", searcher.max_trials or 0, "searcher.max_trials is {}"):
        yield excess
    if max([searcher.num_rungs, len(searcher.bracket_rungs), *searcher.bracket_rungs]) > MOST_RUNGS:
        yield f"searcher: a bracket may have {MOST_RUNGS} rungs, and there may be as many brackets; use fewer."
    if not takes_grid(searcher.section):
        return
    points = 1
    for name, length in axis_lengths(space):
        if excess := limits.over("grid_axis", length, f"hyperparameters.{name}: the grid takes {{}} values"):
            yield excess
        points *= length
        if points > limits.trials:
            yield limits.excess("trials", "hyperparameters: the grid has {} points", f"{points} or more")


def _names(space: Mapping[str, Any]) -> Iterator[str]:
    for name, value in space.items():
        yield name
        if isinstance(value, Mapping) and "type" not in value:
            yield from _names(value)
