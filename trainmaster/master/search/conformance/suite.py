"""The conformance suite of searchers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from trainmaster.master.search.conformance.life import Life
from trainmaster.master.search.simulate import simulate

SPACE: Mapping[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0, "count": 3},
    "net": {
        "width": {"type": "int", "minval": 1, "maxval": 9, "count": 2},
        "act": {"type": "categorical", "vals": ["a", "b"]},
    },
}
SEEDS = range(12)


class SearcherConformance:
    """Tests of one searcher. `sections`: `searcher` sections, as users write them, each with the metric `loss` and the
    time metric `epochs`, of a search that ends within some hundred reports."""

    sections: ClassVar[list[dict[str, Any]]]
    space: ClassVar[Mapping[str, Any]] = SPACE

    @pytest.mark.parametrize("seed", SEEDS)
    def test_ends_and_is_the_same_after_any_interruption(self, seed: int) -> None:
        """Whatever happens to its trials, in whatever order: it ends once, within its bounds, and a search that is
        stored and read before every event, or rebuilt from any snapshot and the events behind it, is the same."""
        for section in self.sections:
            Life(section, self.space, seed, random.Random(seed), random.Random(seed).choice([0.0, 0.05, 0.25])).live()  # noqa: S311 - a test

    def test_draws_depend_on_the_seed(self) -> None:
        for section in self.sections:
            first, again, other = (Life(section, self.space, seed, random.Random(0), 0.0) for seed in (1, 1, 2))  # noqa: S311 - a test
            assert [(c.request_id, c.hparams) for c in first.creates] == [
                (c.request_id, c.hparams) for c in again.creates
            ]
            assert first.creates[0].request_id != other.creates[0].request_id

    def test_previews(self) -> None:
        for section in self.sections:
            for count, units in simulate(section, self.space):
                assert count > 0
                assert units is None or units > 0
