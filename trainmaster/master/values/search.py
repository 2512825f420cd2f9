"""Searches: the `searcher` section of a stored configuration, and the column `experiments.shutdown`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.config.searcher import SearcherOptions
from trainmaster.master.values.stored import StoredJson

_SMALLER_IS_BETTER = SearcherOptions.model_fields["smaller_is_better"].default


@dataclass(frozen=True)
class SearchGoal:
    """What the search compares: a metric, and for how long a trial trains at most, in units of `time_metric`.

    A searcher of a plugin has keys of its own: `section` holds them all, as they are stored.
    """

    name: str = "single"
    metric: str = ""
    smaller_is_better: bool = _SMALLER_IS_BETTER
    time_metric: str = ""
    max_time: int | None = None
    max_length: int | Mapping[str, int] | None = None
    max_trials: int | None = None
    max_concurrent_trials: int | None = None
    bracket_rungs: tuple[int, ...] = ()
    num_rungs: int = 0
    first_points: tuple[Mapping[str, Any], ...] = ()
    forbidden: tuple[Mapping[str, Any], ...] = ()
    slot_hours: float | None = None
    learn_from: tuple[int, ...] = ()
    known: tuple[Mapping[str, Any], ...] = ()
    expected_wait: float | None = None  # seconds
    deadline: str | None = None  # in ISO 8601, with its zone
    ask_tell: bool = False
    source_trial_id: int | None = None
    source_checkpoint_uuid: str | None = None
    section: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SearchGoal:
        return cls(
            name=str(stored.get("name") or cls.name),
            metric=str(stored.get("metric") or ""),
            smaller_is_better=cls.smaller_is_better if (it := stored.get("smaller_is_better")) is None else bool(it),
            time_metric=str(stored.get("time_metric") or ""),
            max_time=int(stored.get("max_time") or 0) or None,
            max_length=stored.get("max_length"),
            max_trials=stored.get("max_trials"),
            max_concurrent_trials=stored.get("max_concurrent_trials"),
            bracket_rungs=tuple(stored.get("bracket_rungs") or ()),
            num_rungs=int(stored.get("num_rungs") or 0),
            first_points=tuple(stored.get("first_points") or ()),
            forbidden=tuple(stored.get("forbidden") or ()),
            slot_hours=stored.get("slot_hours"),
            learn_from=tuple(stored.get("learn_from") or ()),
            known=tuple(stored.get("known") or ()),
            expected_wait=stored.get("expected_wait"),
            deadline=stored.get("deadline"),
            ask_tell=bool(stored.get("ask_tell")),
            source_trial_id=stored.get("source_trial_id"),
            source_checkpoint_uuid=stored.get("source_checkpoint_uuid"),
            section=stored,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the section as it is stored."""
        return dict(self.section)

    @property
    def planned(self) -> bool:
        """Whether it has a budget of slot-hours, or a deadline."""
        return any(self.section.get(key) is not None for key in ("slot_hours", "deadline"))

    @property
    def units(self) -> str:
        """The units in which trials are measured."""
        return self._length[0] or "batches"

    @property
    def length(self) -> int | None:
        """For how many units a trial trains at most; None: it is not limited."""
        return self._length[1]

    @property
    def _length(self) -> tuple[str, int | None]:
        if isinstance(self.max_length, Mapping) and self.max_length:
            units, most = next(iter(self.max_length.items()))
            return str(units), int(most) if most else None
        if isinstance(self.max_length, int):
            return "batches", self.max_length or None
        return self.time_metric, self.max_time


class SearchResult(StoredJson):
    """How a search ended."""

    @classmethod
    def of(cls, *, cancel: bool = False, failure: bool = False, why: str = "") -> SearchResult:
        return cls({"cancel": cancel, "failure": failure, "why": why})

    @property
    def cancel(self) -> bool:
        return bool(self._stored.get("cancel"))

    @property
    def failure(self) -> bool:
        return bool(self._stored.get("failure"))

    @property
    def why(self) -> str:
        return str(self._stored.get("why") or "")
