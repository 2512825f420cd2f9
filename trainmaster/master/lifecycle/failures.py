"""Compares the failures of a search's trials: the cause of a failed experiment, and the fuse that pauses a search whose
first trials all fail at once for one cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

QUICK = 60.0  # seconds from the start of an attempt: no training that works ends earlier with an error
_WHERE = re.compile(r" (?:in rank \d+|on node \S+)")
_FOLDERS = re.compile(r"(?:/[^\s/:'\",]+)+/")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class FailedTrial:
    """How a trial failed. `seconds`: from the start of the attempt."""

    trial: int
    text: str
    seconds: float = 0.0


def cause_of(text: str) -> str:
    """Return the text of a failure without what differs between trials that fail alike: nodes, ranks, numbers,
    folders."""
    return _NUMBERS.sub("#", _FOLDERS.sub("/", _WHERE.sub("", text)))


def reason_of(failures: Sequence[FailedTrial]) -> str:
    """Return the reason of an experiment whose trials have failed, in their order: the most frequent cause, as the
    first trial reports it. Empty without failures."""
    if not failures:
        return ""
    count = Counter(cause_of(failure.text) for failure in failures)
    most, times = count.most_common(1)[0]
    first = next(failure for failure in failures if cause_of(failure.text) == most)
    others = f" ({times} of {len(failures)} failed trials have this cause)" if len(failures) > 1 else ""
    return f"trial {first.trial} failed: {first.text.rstrip('.')}{others}"


def blown(failures: Sequence[FailedTrial], limit: int) -> str:
    """Why a search is to be paused, as a sentence without a full stop; empty where it is not. `failures`: the first
    attempts of its trials that failed, while no trial has reported anything. It answers for the one that makes them
    `limit`, so that a search that is activated again is not paused again."""
    if limit < 1 or len(failures) != limit:
        return ""
    if any(failure.seconds > QUICK for failure in failures) or len({cause_of(one.text) for one in failures}) > 1:
        return ""
    first = failures[0]
    return (
        f"The first {limit} trials all failed within {QUICK:.0f} s for the same cause, so the search is paused. "
        f"{first.text.rstrip('.')} (trial {first.trial}). Activate it once the cause is mended; failure_fuse in the "
        "configuration sets the number, 0 never pauses"
    )
