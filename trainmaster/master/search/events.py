"""What happened to a search, in the form that is stored: applied in order, events lead from one state to the next."""

from __future__ import annotations

from typing import NamedTuple


class SearchEvent(NamedTuple):
    """Something that changed a search. `trial` is the trial's number, 0, 1, ... in order of creation."""

    kind: str  # validation, progress, or how the trial ended: EXITED or an ExitReason
    trial: int
    value: float | None = None
    """Of a validation the searcher's metric, signed so that smaller is better, None where there is no usable number;
    of progress the fraction, 0..1."""
    time: float | None = None  # of a validation, in units of the time metric
    complaint: str = ""  # why a validation has no value
    actions: int = 0  # how many actions it led to, by which a replay is checked
