"""The trials of a search: who there is, who runs, who is paused, and who has ended how."""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Mapping
from typing import Any

from trainmaster.master.search.actions import ExitReason
from trainmaster.master.search.events import EXITED


class TrialBook:
    """By number, 0, 1, ... in order of creation. A trial that has ended is in `ends` and nowhere else."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []  # UUIDs: half the memory of their texts
        self._numbers: dict[bytes, int] = {}
        self.progress: dict[int, float] = {}  # of the trials that have not ended
        self.last_time: dict[int, float] = {}  # of the trials that may still report
        self.stopped: set[int] = set()  # also those that have ended since
        self.paused: set[int] = set()
        self.slot_seconds: dict[int, float] = {}
        self.spent = 0.0  # slot-seconds of all
        self.ends: dict[ExitReason | None, set[int]] = {None: set(), **{reason: set() for reason in ExitReason}}

    def add(self, request_id: bytes) -> int:
        """Record a new trial; return its number."""
        trial = len(self.ids)
        self.ids.append(request_id)
        self._numbers[request_id] = trial
        self.progress[trial] = 0.0
        return trial

    def number(self, request_id: str) -> int | None:
        """Return the number of a trial that has not ended."""
        try:
            trial = self._numbers.get(uuid.UUID(request_id).bytes)
        except ValueError:
            return None  # no trial of ours
        return trial if trial in self.progress else None

    def runs(self, trial: int) -> bool:
        """Whether it is neither paused, nor stopped, nor ended."""
        return trial in self.progress and trial not in self.stopped and trial not in self.paused

    def is_new(self, trial: int, time: float) -> bool:
        """Whether a trial has reported nothing so late yet."""
        return time > self.last_time.get(trial, -math.inf)

    def stop(self, trial: int) -> None:
        """Record that a trial was told to stop."""
        self.stopped.add(trial)
        self.paused.discard(trial)
        self.last_time.pop(trial, None)

    def spend(self, trial: int, slot_seconds: float) -> None:
        """Record what a trial has used in all; it never gets less."""
        more = slot_seconds - self.slot_seconds.get(trial, 0.0)
        if more > 0:
            self.slot_seconds[trial] = slot_seconds
            self.spent += more

    def end(self, trial: int, reason: ExitReason | None) -> None:
        """Record the end of a trial."""
        self.progress.pop(trial)
        self.last_time.pop(trial, None)
        self.paused.discard(trial)
        self.ends[reason].add(trial)

    def only_paused(self) -> list[int]:
        """Return all trials that have not ended if none of them runs or is leaving for good; else nothing."""
        left = self.progress.keys() - self.stopped
        return sorted(left) if left and len(left) == len(self.progress) and left <= self.paused else []

    def word(self, trial: int) -> str:
        """Return what a trial is now."""
        if trial not in self.progress:
            return "over" if 0 <= trial < len(self.ids) else "not there"
        return "being stopped" if trial in self.stopped else "paused" if trial in self.paused else "running"

    def dump(self) -> dict[str, Any]:
        """Return all of it as JSON values, for `load`: about 60 bytes a trial."""
        return {
            "trials": base64.b64encode(b"".join(self.ids)).decode("ascii"),
            "progress": [list(pair) for pair in self.progress.items()],
            "last_time": [list(pair) for pair in self.last_time.items()],
            "stopped": sorted(self.stopped),
            "paused": sorted(self.paused),
            "slot_seconds": [list(pair) for pair in self.slot_seconds.items()],
            "spent": self.spent,
            "ends": {reason or EXITED: sorted(trials) for reason, trials in self.ends.items()},
        }

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> TrialBook:
        """Return the book that `dump` described. Raises KeyError, TypeError, ValueError."""
        book = cls()
        packed = base64.b64decode(stored["trials"])
        for start in range(0, len(packed), 16):
            book.add(packed[start : start + 16])
        book.progress = {trial: fraction for trial, fraction in stored["progress"]}
        book.last_time = {trial: float(time) for trial, time in stored["last_time"]}
        book.stopped = set(stored["stopped"])
        book.ends = {reason: set(stored["ends"].get(reason or EXITED, ())) for reason in book.ends}
        book.ends[None] = set(stored["ends"][EXITED])
        # A search that an earlier release stored paused nothing.
        book.paused = set(stored.get("paused", ()))
        book.slot_seconds = {trial: float(seconds) for trial, seconds in stored.get("slot_seconds", ())}
        book.spent = float(stored.get("spent", 0.0))
        return book
