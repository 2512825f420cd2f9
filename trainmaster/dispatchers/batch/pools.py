"""Partitions or queues as they were last seen."""

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
    """A cluster's own pools by name. Thread-safe."""

    def __init__(self, ask: Callable[[Mapping[str, PoolT]], dict[str, PoolT]], good_for: float) -> None:
        """`ask` is given what was known before; its answer is good for so many seconds."""
        self._ask = ask
        self._good_for = good_for
        self._lock = threading.Lock()
        self._known: dict[str, PoolT] = {}
        self._asked_at: float | None = None
        self._questions = 0  # begun so far
        self._answered = 0  # the question whose answer is known

    def all(self, *, fresh: bool = False) -> dict[str, PoolT]:
        """As they are known, or, `fresh`, as they are: asked for again when the last answer is old. Raises Unreachable,
        Transient."""
        with self._lock:
            age = None if self._asked_at is None else time.monotonic() - self._asked_at
            if age is not None and not (fresh and age > self._good_for):
                return self._known
            before = self._known
            self._questions += 1
            question = self._questions
        # Asked without the lock: a controller that hangs must not hold up those who are content with old answers.
        found = self._ask(before)
        with self._lock:
            if question > self._answered:  # an answer that took its time must not hide a newer one
                self._known, self._answered, self._asked_at = found, question, time.monotonic()
        return found

    def find(self, name: str) -> PoolT | None:
        """None when there is none of that name, or when the cluster cannot be asked: its submit command will say what
        it thinks of the name."""
        try:
            return self.all().get(name)
        except DispatcherError:
            return None

    def of_cpus(self) -> set[str]:
        """Names of those whose slots are CPUs, as far as they are known."""
        with self._lock:
            return {name for name, pool in self._known.items() if pool.slot_type is SlotType.CPU}
