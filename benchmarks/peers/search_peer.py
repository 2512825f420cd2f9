"""What the searches of other packages have in common: the simulator tells them what it tells ours."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from trainmaster.master.search.actions import Action, Create, ExitReason, PauseTrial, ResumeTrial, StopTrial
from trainmaster.master.search.simulation import Searching

METRIC, TIME, FACTOR = "loss", "epochs", 3


class TimedSearch:
    """Any search, with the CPU seconds that it computed and the trials that it created."""

    def __init__(self, search: Searching, actions: list[Action], cpu: float) -> None:
        """Take a search that has begun, with its first actions and what they took."""
        self._search = search
        self.cpu, self.created = cpu, 0
        self._count(actions)

    def validation(self, *args: Any, **spending: Any) -> list[Action]:
        return self._timed(self._search.validation, *args, **spending)

    def exited(self, *args: Any, **spending: Any) -> list[Action]:
        return self._timed(self._search.exited, *args, **spending)

    def exited_early(self, *args: Any, **spending: Any) -> list[Action]:
        return self._timed(self._search.exited_early, *args, **spending)

    def _timed(self, method: Any, *args: Any, **spending: Any) -> list[Action]:
        before = time.process_time()
        actions: list[Action] = method(*args, **spending)
        self.cpu += time.process_time() - before
        self._count(actions)
        return actions

    def _count(self, actions: list[Action]) -> None:
        self.created += sum(isinstance(action, Create) for action in actions)


class Peer:
    """Base class: one new trial for each that is over."""

    def __init__(self, space: Mapping[str, Any], longest: int) -> None:
        """`longest`: epochs of a full trial."""
        self.space, self.longest = space, longest
        self.trials: dict[str, Any] = {}

    def begin(self, workers: int) -> list[Action]:
        return [self._created() for _ in range(workers)]

    def validation(self, request_id: str, metrics: Mapping[str, Any], *_: Any, **__: Any) -> list[Action]:
        if request_id not in self.trials:
            return []
        if self._continues(request_id, float(metrics[METRIC]), int(metrics[TIME])):
            return []
        del self.trials[request_id]
        return [StopTrial(request_id, "stopped"), self._created()]

    def exited(self, request_id: str, **_: Any) -> list[Action]:
        if request_id not in self.trials:
            return []
        self._complete(request_id)
        del self.trials[request_id]
        return [self._created()]

    def exited_early(self, request_id: str, reason: ExitReason, **_: Any) -> list[Action]:
        del reason
        return self.exited(request_id)

    def _created(self) -> Action:
        key = str(uuid.uuid4())
        self.trials[key], point = self._suggested(key)
        return Create(key, native(self.space, point), 0, "suggested")

    def _suggested(self, key: str) -> tuple[Any, Mapping[str, Any]]:
        raise NotImplementedError  # each package has its own

    def _continues(self, key: str, value: float, epoch: int) -> bool:
        raise NotImplementedError  # each package has its own

    def _complete(self, key: str) -> None:
        raise NotImplementedError  # each package has its own


class PromotingPeer:
    """Base class: the package says which point is trained up to which epoch. A point that it wants to see again, for
    longer, is a trial that was paused and continues."""

    def __init__(self, space: Mapping[str, Any], longest: int) -> None:
        self.space, self.longest = space, longest
        self._asked: dict[str, tuple[Any, int]] = {}  # by trial: what the package asked, and until which epoch
        self._keys: dict[Any, str] = {}  # by point
        self._seen: dict[str, list[float]] = {}  # by trial: its values

    def begin(self, workers: int) -> list[Action]:
        return [self._next() for _ in range(workers)]

    def validation(self, request_id: str, metrics: Mapping[str, Any], *_: Any, **__: Any) -> list[Action]:
        self._seen[request_id].append(float(metrics[METRIC]))
        question, until = self._asked.get(request_id, (None, self.longest + 1))
        if int(metrics[TIME]) < until:
            return []
        del self._asked[request_id]
        self._tell(question, float(metrics[METRIC]))
        if until < self.longest:
            return [PauseTrial(request_id, "waits"), self._next()]
        return [StopTrial(request_id, "complete"), self._next()]

    def exited(self, request_id: str, **_: Any) -> list[Action]:
        return self._gone(request_id)

    def exited_early(self, request_id: str, reason: ExitReason, **_: Any) -> list[Action]:
        del reason
        return self._gone(request_id)

    def _gone(self, key: str) -> list[Action]:
        """A trial is over before the epoch that was asked for."""
        if key not in self._asked:
            return []
        question, _ = self._asked.pop(key)
        self._tell(question, None)
        return [self._next()]

    def _next(self) -> Action:
        while True:
            question, identity, point, until = self._ask()
            key = self._keys.get(identity)
            if key is None:
                key = self._keys[identity] = str(uuid.uuid4())
                self._asked[key], self._seen[key] = (question, until), []
                return Create(key, native(self.space, point), 0, "suggested")
            if len(self._seen[key]) < until:
                self._asked[key] = (question, until)
                return ResumeTrial(key, "promoted")
            self._tell(question, self._seen[key][until - 1])  # was trained that long already

    def _ask(self) -> tuple[Any, Any, Mapping[str, Any], int]:
        """Return what to answer to, what tells the point from others, the point, and until which epoch."""
        raise NotImplementedError  # each package has its own

    def _tell(self, question: Any, value: float | None) -> None:
        """`value`: None of a trial that failed."""
        raise NotImplementedError  # each package has its own


def native(space: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point in Python's own types: tables are looked up by them, and packages return NumPy's."""
    return {
        name: next(value for value in axis["vals"] if value == point[name])
        if axis["type"] == "categorical"
        else float(point[name])
        for name, axis in space.items()
    }
