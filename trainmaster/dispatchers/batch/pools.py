"""Thread-safe cache of a cluster's partitions or queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from trainmaster.dispatchers.base import DispatcherError, SlotType


class HasSlots(Protocol):
    @property
    def slot_type(self) -> SlotType: ...


PoolT = TypeVar("PoolT", bound=HasSlots)


class KnownPools(Generic[PoolT]):
    """Cached pools of a cluster, by name. Thread-safe."""

    def __init__(self, ask: Callable[[Mapping[str, PoolT]], dict[str, PoolT]], good_for: float) -> None:
        """`ask` queries the cluster; it gets the previous answer. Answers are reused for `good_for` seconds."""
        self._ask = ask
        self._good_for = good_for
        self._lock = threading.Lock()
        self._known: dict[str, PoolT] = {}
        self._asked_at: float | None = None
        self._questions = 0  # queries begun so far
        self._answered = 0  # number of the query whose answer is cached

    def all(self, *, fresh: bool = False) -> dict[str, PoolT]:
        """Return all pools; with `fresh`, query the cluster again if the last answer is old. Raises Unreachable,
        Transient."""
        with self._lock:
            age = None if self._asked_at is None else time.monotonic() - self._asked_at
            if age is not None and not (fresh and age > self._good_for):
                return self._known
            before = self._known
            self._questions += 1
            question = self._questions
        # Queried without the lock: a controller that hangs must not block callers that accept a cached answer.
        pools = self._ask(before)
        with self._lock:
            if question > self._answered:  # a slow answer must not replace a newer one
                self._known, self._answered, self._asked_at = pools, question, time.monotonic()
        return pools

    def find(self, name: str) -> PoolT | None:
        """Return the pool called `name`; None when there is none, or when the cluster does not answer: then its submit
        command will check the name."""
        try:
            return self.all().get(name)
        except DispatcherError:
            return None

    def cached(self) -> Mapping[str, PoolT]:
        """Return the last answer; empty before the first."""
        with self._lock:
            return self._known

    def of_cpus(self) -> set[str]:
        """Return the names of cached pools whose slots are CPUs."""
        with self._lock:
            return {name for name, pool in self._known.items() if pool.slot_type is SlotType.CPU}
