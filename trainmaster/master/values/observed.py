"""The latest observation of a job in its cluster: the column `allocations.observed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from trainmaster.master.values.stored import Json


@dataclass(frozen=True)
class ObservedJob:
    """What the scheduler reports of a job. Times are epoch seconds; None is unknown, and is not stored."""

    # Names of keys, for statements that read them in the database.
    EXPECTED_START = "expected_start"
    ESTIMATED = "estimated"
    NEVER_SINCE = "never_since"

    raw: str | None = None  # the scheduler's state
    reason: str | None = None
    text: str | None = None  # what the scheduler, or the master, says about it
    nodes: tuple[str, ...] = ()
    ends_at: float | None = None
    never: bool = False  # it can never start
    never_since: float | None = None
    taken_back_at: float | None = None
    restarts: int = 0
    expected_start: float | None = None
    estimated: float | None = None  # the first `expected_start`
    doubles: tuple[str, ...] = ()  # jobs under the token that are being removed, and get no lease
    ended_seen_at: float | None = None
    # Of a job that has ended: what `cancellation.doubt` weighs.
    alive_at: float | None = None
    signal: int | None = None
    canceller: str | None = None
    started_at: float | None = None
    submitted_at: float | None = None
    controller_started_at: float | None = None
    script_began: bool | None = None
    asked: bool = False  # the scheduler's accounting has been asked about its end
    unknown: Mapping[str, Any] = field(default_factory=dict)  # keys of another release

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ObservedJob:
        names = _names()
        known = {key: value for key, value in stored.items() if key in names and value is not None}
        for key in ("nodes", "doubles"):
            if key in known:
                known[key] = tuple(known[key])
        if len(known) == len(stored):
            return cls(**known)
        return cls(**known, unknown={key: value for key, value in stored.items() if key not in names})

    def to_json(self) -> Json:
        known = {name: getattr(self, name) for name in _names()}
        stored = {key: value for key, value in known.items() if value is not None and value != ()}
        stored = {key: value for key, value in stored.items() if value or key not in ("never", "asked")}
        for key in ("nodes", "doubles"):
            if key in stored:
                stored[key] = list(stored[key])
        return {**self.unknown, **stored}

    def updated(self, **values: Any) -> ObservedJob:
        return replace(self, **values)


@cache
def _names() -> frozenset[str]:
    return frozenset(each.name for each in fields(ObservedJob)) - {"unknown"}
