"""Draws points where good trials are dense and bad ones are not (Bergstra et al. 2011, "Algorithms for hyper-parameter
optimization", section 4), with kernels over all hyperparameters together, and without any library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from trainmaster.master.search.axes import Axis, Coordinates
from trainmaster.master.search.mersenne import RandomState

CANDIDATES = 8  # more would leave no variety: the best of many is always the same
NARROWEST, WIDEST = 0.05, 0.3  # of a kernel, where the whole range is 1
PRIOR_WIDTH = 0.15  # of the kernel around a user's guess
MISMATCH = 0.25  # how much of a kernel lies on all categories alike


class Density:
    """A sum of kernels at `places`, and a flat part that counts as one more."""

    def __init__(self, axes: Sequence[Axis], places: Sequence[Coordinates], weights: Sequence[float]) -> None:
        self._axes, self._places = axes, places
        total = sum(weights) or 1.0
        self._weights = [weight / total * len(places) / (len(places) + 1) for weight in weights]
        self._flat = 1.0 / (len(places) + 1)
        self._widths = [self._width(at) for at in range(len(axes))]
        self._numbers = [(at, 0.5 / self._widths[at] ** 2) for at, axis in enumerate(axes) if axis.categories is None]
        self._sets = [(at, _odds(len(axis.categories))) for at, axis in enumerate(axes) if axis.categories is not None]
        self._scale = math.prod(
            1 / (self._widths[at] * math.sqrt(2 * math.pi)) if axis.categories is None else _hit(axis.categories)
            for at, axis in enumerate(axes)
        )

    def _width(self, at: int) -> float:
        values = [place[at] for place in self._places]
        if self._axes[at].categories is not None or len(values) < 2:
            return WIDEST
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
        # Scott's rule.
        width: float = spread * len(values) ** (-1 / (len(self._axes) + 4))
        return min(max(width, NARROWEST), WIDEST)

    def at(self, place: Coordinates) -> float:
        """Return the density at a place, relative to the flat one."""
        total = 0.0
        for weight, centre in zip(self._weights, self._places, strict=True):
            exponent = 0.0
            for at, factor in self._numbers:
                gap = place[at] - centre[at]
                exponent += gap * gap * factor
            for at, odds in self._sets:
                if place[at] != centre[at]:
                    exponent += odds
            if exponent < 30:
                total += weight * math.exp(-exponent)
        return self._flat + self._scale * total

    def draw(self, stream: RandomState) -> list[float]:
        """Draw a place."""
        dice = stream.unit()
        for weight, centre in zip(self._weights, self._places, strict=True):
            dice -= weight
            if dice < 0:
                kernels = zip(self._axes, centre, self._widths, strict=True)
                return [near(axis, place, width, stream) for axis, place, width in kernels]
        return flat(self._axes, stream)


def near(axis: Axis, centre: float, width: float, stream: RandomState) -> float:
    """Draw a coordinate of one axis from a kernel."""
    if axis.categories is not None:
        return float(stream.below(len(axis.categories))) if stream.unit() < MISMATCH else centre
    for _ in range(10):
        # Box and Muller 1958.
        size = math.sqrt(-2 * math.log(1 - stream.unit()))
        value = centre + width * size * math.cos(2 * math.pi * stream.unit())
        if 0 <= value <= 1:
            return value
    return centre


def flat(axes: Sequence[Axis], stream: RandomState) -> list[float]:
    """Draw a place with no preference."""
    return [stream.unit() if axis.categories is None else float(stream.below(len(axis.categories))) for axis in axes]


def near_priors(axes: Sequence[Axis], priors: Mapping[int, float], stream: RandomState) -> list[float]:
    """Draw a place near the user's priors (by axis), anywhere on the axes that have none."""
    place = flat(axes, stream)
    for at, prior in priors.items():
        place[at] = near(axes[at], prior, PRIOR_WIDTH, stream)
    return place


def best_of(
    good: Density, bad: Density, is_new: Callable[[Coordinates], bool], stream: RandomState
) -> list[float] | None:
    """Draw some places of `good`, and return the new one where it exceeds `bad` most; None where none is new."""
    places = [place for place in (good.draw(stream) for _ in range(CANDIDATES)) if is_new(place)]
    return max(places, key=lambda place: good.at(place) / bad.at(place), default=None)


def _hit(categories: Sequence[object]) -> float:
    """Return the density of a kernel on its own category, where the flat one is 1."""
    return len(categories) * (1 - MISMATCH + MISMATCH / len(categories))


def _odds(count: int) -> float:
    """Return by how much the logarithm of the density is less on another category."""
    return math.log((1 - MISMATCH + MISMATCH / count) / (MISMATCH / count))
