"""Decisions of the state machines of trials and tasks about attempts, and the delay before the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SETBACKS = 8  # consecutive infrastructure failures before the trial gives up
SETBACK_DELAYS = (0, 5, 15, 30, 60, 120, 300, 600)  # seconds to wait before the next attempt


class WithReason:
    """An event of a state machine. `why` is empty where the event has no reason of its own."""

    why = ""


@dataclass(frozen=True)
class Allocate:
    """Ask for resources. `delay`: seconds to wait first."""

    attempt: int
    delay: int = 0


@dataclass(frozen=True)
class Preempt:
    """Ask the running attempt to save its work and leave."""

    reason: str


@dataclass(frozen=True)
class End:
    """End the running attempt now."""

    reason: str


@dataclass(frozen=True)
class WriteLog:
    """A line for the task's log."""

    level: str
    text: str


def delay_after(setbacks: int) -> int | None:
    """Seconds that the next attempt waits after so many consecutive infrastructure failures; None: there have
    been too many."""
    return None if setbacks > MAX_SETBACKS else SETBACK_DELAYS[min(setbacks, len(SETBACK_DELAYS)) - 1]
