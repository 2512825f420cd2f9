"""Events of a search: what changed it, in a form that is stored and read again."""

from __future__ import annotations

from typing import Any, NamedTuple

EXITED = "EXITED"  # the end of a trial for no other reason
INSTRUCTED = "instructed"
NO_TRIAL = -1


class SearchEvent(NamedTuple):
    """Something that changed a search. `trial` is the trial's number, 0, 1, ... in order of creation."""

    kind: str  # validation, progress, INSTRUCTED, or how the trial ended: EXITED or an ExitReason
    trial: int  # NO_TRIAL where it is INSTRUCTED
    value: float | None = None
    """Of a validation the searcher's metric, signed so that smaller is better, None where there is no usable number;
    of progress the fraction, 0..1; of INSTRUCTED the number of the question, whose answer is in `drawn`."""
    time: float | None = None  # of a validation, in units of the time metric
    complaint: str = ""  # why a validation has no value
    actions: int = 0  # how many actions it led to, by which a replay is checked
    others: dict[str, float] | None = None  # the method's other metrics
    slot_seconds: float | None = None  # of this trial, for methods that see what is spent
    at: float | None = None  # seconds since 1970, for the same
    drawn: list[Any] | None = None  # what the method drew, in order
