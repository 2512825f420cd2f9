"""Calls on one thing that come at the same time are carried out together: a transaction serves all that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Call = TypeVar("Call")
Result = TypeVar("Result")

MOST = 200  # calls at once


@dataclass
class _Queue(Generic[Call, Result]):
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[tuple[Call, Future[Result]]] = field(default_factory=list)
    users: int = 0


class Combiner(Generic[Call, Result]):
    """`carry_out(key, calls)` returns the results of calls on the thing with that key, in order, or raises for all of
    them. After an error each call is carried out by itself, so that nobody pays for another one's."""

    def __init__(self, carry_out: Callable[[int, Sequence[Call]], Sequence[Result]]) -> None:
        self._carry_out = carry_out
        self._lock = threading.Lock()
        self._queues: dict[int, _Queue[Call, Result]] = {}

    def call(self, key: int, call: Call) -> Result:
        """Carry out a call, with those that wait beside it. Raises as `carry_out`."""
        future: Future[Result] = Future()
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            queue.users += 1
            queue.waiting.append((call, future))
        try:
            with queue.turn:  # whoever comes first works for all that have come by then
                while not future.done():
                    with self._lock:
                        batch, queue.waiting = queue.waiting[:MOST], queue.waiting[MOST:]
                    self._work(key, batch)
        finally:
            with self._lock:
                queue.users -= 1
                if queue.users == 0:
                    del self._queues[key]
        return future.result()

    def _work(self, key: int, batch: Sequence[tuple[Call, Future[Result]]]) -> None:
        try:
            results = self._carry_out(key, [call for call, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for each in batch:
                self._work(key, [each])
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
