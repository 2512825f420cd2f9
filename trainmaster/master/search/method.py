"""The interface of a search method: it receives reports of trials, and creates, pauses, resumes and stops trials.

Methods know trials by number (0, 1, ... in order of creation) and hold no random stream of their own;
`ActionQueue` gives them new trials and random draws. A method never receives the same report twice: `Search` removes
repeated, late and unknown reports first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.mersenne import RandomState

T = TypeVar("T")


class ActionQueue(Protocol):
    """Collects a method's requests; they become actions in the order of the calls."""

    def create(self, why: str, hparams: Mapping[str, Any] | None = None, parent: int | None = None) -> int:
        """Create a trial, at a random point unless `hparams` is given. Returns its number. `parent`: the trial whose
        latest checkpoint it continues from."""

    def stop(self, trial: int, why: str) -> None:
        """Stop a trial that runs or is paused. It is asked once; its end is reported later through `Method.ended`."""

    def pause(self, trial: int, why: str) -> None:
        """Pause a running trial: it saves its work and gives its slots back, and its checkpoint is kept. Reports that
        it still makes on its way are left out. It may end instead (`Method.ended`): by itself, or by a person."""

    def resume(self, trial: int, why: str) -> None:
        """Let a paused trial continue. Without a checkpoint it begins again, and its reports up to the time where it
        was paused are left out."""

    def warn(self, text: str) -> None:
        """Tell the user something, as a sentence without a full stop: it is in the search's story."""

    def draw(self, make: Callable[[RandomState], T]) -> T:
        """Return `make(stream)`, a JSON value, which is stored with the event that it answers. When the search is
        rebuilt, it comes from there and `make` is not called: another release of a library, or another processor,
        changes nothing that was drawn before. All that a method decides by a model, or by random numbers, it draws."""

    def spent(self, trial: int | None = None) -> float:
        """Return the slot-seconds that a trial, or all of them together, have used. Methods with `sees_spending`."""

    def now(self) -> float:
        """Return the time of the event, in seconds since 1970. Methods with `sees_spending`."""


class RelayedOrders:
    """An `ActionQueue` in front of another one: base class of those that change what a method asks for."""

    def __init__(self, orders: ActionQueue) -> None:
        self.orders = orders

    def create(self, why: str, hparams: Mapping[str, Any] | None = None, parent: int | None = None) -> int:
        return self.orders.create(why, hparams, parent)

    def stop(self, trial: int, why: str) -> None:
        self.orders.stop(trial, why)

    def pause(self, trial: int, why: str) -> None:
        self.orders.pause(trial, why)

    def resume(self, trial: int, why: str) -> None:
        self.orders.resume(trial, why)

    def warn(self, text: str) -> None:
        self.orders.warn(text)

    def draw(self, make: Callable[[RandomState], T]) -> T:
        return self.orders.draw(make)

    def spent(self, trial: int | None = None) -> float:
        return self.orders.spent(trial)

    def now(self) -> float:
        return self.orders.now()


@dataclass(frozen=True)
class ValidationReport:
    """A validation of a running trial, newer than any before it."""

    value: float | None  # signed: smaller is better; None when the report holds no usable number
    time: float  # in units of the time metric
    complaint: str = ""  # why `value` is None, as a sentence
    others: Mapping[str, float] = field(default_factory=dict)  # `Method.other_metrics`, as reported, where finite


@dataclass(frozen=True)
class RungRanking:
    """Who has reached a rung: `trials`, the best first, with their signed `values` (smaller is better; None: failed or
    without a usable number). `cut`: the worst value that continues now; None at the top rung and at an empty one."""

    units: int
    trials: Sequence[int]
    values: Sequence[float | None]
    cut: float | None
    stopped: int
    paused: int = 0


@dataclass(frozen=True)
class BracketRanking:
    """The rungs of a bracket, the lowest first, and the trials that were begun in it. `pauses`: a trial that does not
    continue from a rung waits there, and may continue later."""

    rungs: Sequence[RungRanking]
    trials: Sequence[int]
    running: int
    pauses: bool = False


@dataclass(frozen=True)
class Arrival:
    """A trial that reached a rung, and what the search knew right after it. `value`: signed (smaller is better; None:
    failed or without a usable number). `rank`: from 1, among the `of` trials that had reached the rung by then; the
    best `keep` of them went on. `cut`: the worst value that went on; None at the top rung and where all had failed."""

    trial: int
    rung: int
    value: float | None
    rank: int
    of: int
    keep: int
    cut: float | None


When = Callable[[int, int], float]
"""When a trial (by number) reached a rung, in seconds; for what a search of an earlier release did not record."""


class Method(ABC):
    """One search algorithm. `state` and `load` carry all that the configuration does not say.

    It is deterministic: the same reports in the same order lead to the same requests and the same state. The master
    keeps a search as a `state` of some time ago and the reports since then."""

    max_concurrent: int
    """How many trials run at the same time, at most. One that is paused or was told to stop does not count."""

    other_metrics: Sequence[str] = ()
    """Validation metrics that it sees beside the searcher's."""

    @property
    def open(self) -> bool:
        """Whether the search waits for more where no trial is left, or only paused ones. Of `instructed` methods."""
        return False

    sees_spending: bool = False
    """Whether it asks `ActionQueue.spent` and `ActionQueue.now`, which are then stored with each event."""

    @abstractmethod
    def begin(self, orders: ActionQueue) -> None:
        """Create the first trials; at least one."""

    def validated(self, trial: int, report: ValidationReport, orders: ActionQueue) -> None:  # noqa: B027 - most do not care
        """Take in a validation of a running trial that was not stopped."""

    @abstractmethod
    def ended(self, trial: int, reason: ExitReason | None, orders: ActionQueue) -> None:
        """Take in the end of a trial, stopped or not; `reason` is None for a normal end. Called once per trial. When
        nothing but paused trials is left after an event, `Search` stops them."""

    def instructed(self, _number: int, _answer: Any, _orders: ActionQueue) -> None:
        """Take in what a program outside of the master decided, for methods that ask one (`custom`). Raises
        SearchError, a sentence for the program."""
        raise SearchError("this searcher takes no instructions")

    @abstractmethod
    def progress(self, running: Mapping[int, float], ended: int) -> float:
        """Progress of the search, 0..1, given each running trial's own progress and the number of trials that
        have ended with a valid point."""

    @abstractmethod
    def describe(self) -> str:
        """One line of text that describes the state of the search."""

    def rankings(self) -> Sequence[BracketRanking]:
        """Return the rungs and who is on them, for a method that compares trials at rungs; empty for others."""
        return ()

    def arrivals(self, _when: When) -> Sequence[Sequence[Arrival]]:
        """For each bracket of `rankings`: who reached a rung, in order."""
        return ()

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state that `load` needs, as JSON values."""

    @abstractmethod
    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`. A float that has no fraction may come back as an int, which above 2**53
        may be another number: convert it."""


Preview = Sequence[tuple[int, int | None]]
"""Pairs (number of trials, units of the time metric); None for units means that they train to their end."""


class Searcher(Protocol):
    """Base class of plugins in the entry-point group ``trainmaster.searchers``: the model of its `searcher` section,
    which makes the method. It inherits `trainmaster.config.searcher.SearcherOptions`; its name in the group is the
    section's `name`. Both methods are pure: no I/O, no clock, no random numbers of their own."""

    def method(self, hparams: Mapping[str, Any]) -> Method:
        """Return the search algorithm, not yet begun.

        Args:
            hparams: the complete `hyperparameters` section.

        Returns:
            A method that `Method.begin` or `Method.load` starts.

        Raises:
            SearchError: the section and the hyperparameters do not match; a sentence for the user.
        """

    def preview(self, hparams: Mapping[str, Any]) -> Preview:
        """Pairs of a number of trials and their length, the shortest first, if no trial fails. Args and Raises as
        `method`."""


def given(value: T | None, key: str) -> T:
    """Return the value of a key that must be set. Raises SearchError."""
    if value is None:
        raise SearchError(f"searcher.{key} is required")
    return value


@dataclass
class Budget:
    """The number of trials that may still be created.

    A point that the trial's code rejected is replaced and does not count, but code that rejects everything must not
    keep a cluster busy for ever: no more points than `max_trials` are replaced."""

    max_trials: int
    created: int = 0
    invalid: int = 0

    @property
    def left(self) -> bool:
        return self.created - min(self.invalid, self.max_trials) < self.max_trials

    def spend(self) -> str:
        """Count one more trial; return its place as a text."""
        self.created += 1
        return f"trial {self.created - min(self.invalid, self.max_trials)} of {self.max_trials}"


def counts(running: int, ended: int, total: int) -> str:
    """Return the one-line state of a search that runs every trial to its end."""
    return f"{ended} of {total} trials ended, {running} running"
