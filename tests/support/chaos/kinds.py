"""What a kind of fault is, and the draw of a run's faults from its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

S = TypeVar("S")


class NothingToHit(Exception):
    """There is nothing at this moment that the fault could spoil, such as no job that runs."""


def long(dice: Random) -> float:
    """Seconds of a fault whose length matters: mostly short, sometimes beyond the deadlines of requests."""
    return dice.choice([dice.uniform(0.5, 3.0), dice.uniform(0.5, 3.0), dice.uniform(8.0, 15.0)])


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    what: str  # what it does and how it is undone, for the summary
    touches: frozenset[str]  # two faults that touch the same thing are not there at the same time
    run: Callable[[Any, Random], str]  # does it, waits, undoes it; returns its particulars

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Drawn:
    """A fault of a run: its number, its kind, the dice for its particulars, and the seconds before the next one."""

    number: int
    kind: Kind
    dice: Random
    pause: float


class Kinds:
    """A list of kinds that functions enter with a decorator."""

    def __init__(self) -> None:
        self.all: list[Kind] = []

    def kind(self, *touches: str) -> Callable[[Callable[[S, Random], str]], Callable[[S, Random], str]]:
        def enter(run: Callable[[S, Random], str]) -> Callable[[S, Random], str]:
            what = " ".join((run.__doc__ or "").split())
            self.all.append(Kind(run.__name__.replace("_", " "), what, frozenset(touches), run))
            return run

        return enter


def draw(seed: int, kinds: Sequence[Kind], gap: float) -> Iterator[Drawn]:
    """Faults without end, the same for the same seed and kinds. Each kind comes once before any comes again.

    Args:
        gap: mean seconds from the beginning of a fault to that of the next.
    """
    dice = Random(seed)
    number = 0
    while True:
        for kind in dice.sample(kinds, len(kinds)):
            number += 1
            yield Drawn(number, kind, Random(dice.random()), dice.uniform(0, 2 * gap))
