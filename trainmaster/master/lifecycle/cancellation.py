"""Decides whether to believe that a person cancelled a job which its scheduler calls cancelled.

Schedulers use the same word, and often the same account, for jobs that they end on their own account: a launch that a
node refused, a job that a controller with an old state started again. A person's cancellation ends a trial for good;
the cluster's doing costs it nothing. So the word is believed only where nothing speaks against it. A record that names
a person decides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

WHOLE_SECONDS = 1.0  # schedulers round their times to these


class Doubt(enum.StrEnum):
    """What speaks against a person's cancellation, in the order in which it is looked for. The value is a sentence."""

    STARTED_AGAIN = "The scheduler started the job a second time while it ran, and cancelled it"
    NEVER_BEGAN = "The scheduler gave the job its nodes, cancelled it and never started its script"
    CONTROLLER_RESTARTED = "The scheduler was restarted while the job lived, and cancelled it since"


@dataclass(frozen=True)
class Cancellation:
    """What is known of a job that its scheduler calls cancelled, and whose end nobody asked us for. Times are epoch
    seconds by the master's clock."""

    by_person: bool = False  # the scheduler's record names one
    asked: bool = True  # its accounting and the job's files were examined
    leased_at: float | None = None  # when the job's runtime began; None: it never did
    started_at: float | None = None  # start of the run that was cancelled, as the scheduler shows it
    placed: bool = False  # it had been given nodes
    script_began: bool | None = None  # None: not known
    alive_at: float | None = None  # when it was seen alive last
    controller_started_at: float | None = None  # when the scheduler's controller was started last


def doubt(known: Cancellation) -> Doubt | None:
    """Return what speaks against a person's cancellation; None when nothing does."""
    if known.by_person:
        return None
    if known.leased_at is None:
        if known.placed and known.script_began is False:
            return Doubt.NEVER_BEGAN
    elif _after(known.started_at, known.leased_at + WHOLE_SECONDS):
        return Doubt.STARTED_AGAIN
    return Doubt.CONTROLLER_RESTARTED if _after(known.controller_started_at, known.alive_at) else None


def _after(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other


def needs_asking(known: Cancellation) -> bool:
    """Whether the scheduler's accounting and the job's files may still decide. Not where nothing speaks against a
    person: a thousand jobs that somebody cancels at once cost no query each."""
    if known.asked or known.by_person:
        return False
    return doubt(known) is not None or (known.leased_at is None and known.placed)
