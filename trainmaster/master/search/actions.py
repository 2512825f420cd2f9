"""Actions that a search requests, the ways in which a trial can end early, and errors of a search.

SearchError    the search cannot be started or continued: an unknown searcher, a section that is
               incomplete, a snapshot of another version. The message is a sentence for the user.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class SearchError(ValueError):
    """A search that cannot be started or continued; the message says what to do."""


@dataclass(frozen=True)
class Create:
    """Start a trial with these hyperparameters; `seed` is the trial's own random seed, 0 .. 2**31 - 1. `parent`: the
    trial (by request id) whose latest checkpoint it loads before its first step."""

    request_id: str  # a UUID, drawn from the search's random stream
    hparams: dict[str, Any]
    seed: int
    why: str
    parent: str | None = None


@dataclass(frozen=True)
class StopTrial:
    """Ask a trial to checkpoint and leave. A trial gets at most one."""

    request_id: str
    why: str


@dataclass(frozen=True)
class PauseTrial:
    """Ask a trial to checkpoint and leave until it is resumed."""

    request_id: str
    why: str


@dataclass(frozen=True)
class ResumeTrial:
    """Let a paused trial continue from its latest checkpoint."""

    request_id: str
    why: str


@dataclass(frozen=True)
class Shutdown:
    """The search is over; no action follows it.

    `cancel`: every trial was cancelled. `failure`: every trial failed.
    """

    cancel: bool
    failure: bool
    why: str


@dataclass(frozen=True)
class Warn:
    """Tell the user something about the search."""

    why: str


Action = Create | StopTrial | PauseTrial | ResumeTrial | Warn | Shutdown


class ExitReason(enum.StrEnum):
    """Why a trial ended before its time."""

    ERRORED = "ERRORED"  # it failed, and no restart is left
    USER_CANCELED = "USER_CANCELED"  # a person cancelled or killed it
    INVALID_HP = "INVALID_HP"  # its code rejected the hyperparameters
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # it failed for want of memory, and no restart is left

    @property
    def infeasible(self) -> bool:
        """Whether it is the point that cannot be trained: others like it would end the same way."""
        return self in (ExitReason.INVALID_HP, ExitReason.OUT_OF_MEMORY)
