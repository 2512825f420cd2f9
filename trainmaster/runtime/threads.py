"""Threads and how they wait for each other, as `threading` has them, from what is written in C: `threading` and the
modules that it needs cost every job 4 ms of CPU."""

from __future__ import annotations

import sys
import time
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Lock, RLock
    from threading import local as Local
    from typing import Any, Callable, List, Optional
else:
    from _thread import RLock
    from _thread import _local as Local
    from _thread import allocate_lock as Lock

__all__ = ["Condition", "Event", "Local", "Lock", "RLock", "Thread"]


class Thread:
    """Runs `target`, or what a subclass makes of `run`. The end of the process waits for none."""

    def __init__(self, target: Optional[Callable[..., object]] = None, *args: Any) -> None:
        self._target = target
        self._args = args
        self._running = Lock()  # held from the start to the end

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args)

    def start(self) -> None:
        """Once. Raises RuntimeError when there can be no more threads."""
        self._running.acquire()
        try:
            start_new_thread(self._run, ())
        except BaseException:
            self._running.release()
            raise

    def is_alive(self) -> bool:
        return self._running.locked()

    def join(self, timeout: Optional[float] = None) -> None:
        """Wait for the end, so many seconds at most."""
        if _acquire(self._running, timeout):
            self._running.release()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            self._running.release()


class Condition:
    """A lock that is not re-entrant, and news about what it guards."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: List[Any] = []  # a lock for each that waits: held until it is told

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Let go of the lock until there is news, so many seconds at most; whether there was."""
        told = Lock()
        told.acquire()
        self._waiting.append(told)
        self._lock.release()
        try:
            _acquire(told, timeout)
        finally:
            self._lock.acquire()
            silent = told in self._waiting
            if silent:
                self._waiting.remove(told)
        return not silent

    def wait_for(self, come_true: Callable[[], bool], timeout: float) -> bool:
        """The same until `come_true`, which is asked with the lock held, says so."""
        deadline = time.monotonic() + timeout
        while not come_true():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        """Tell everybody who waits. Asks for the lock to be held."""
        told, self._waiting = self._waiting, []
        for one in told:
            one.release()


class Event:
    """Something that happens once."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._happened = False

    def is_set(self) -> bool:
        return self._happened

    def set(self) -> None:
        with self._changed:
            self._happened = True
            self._changed.notify_all()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until it has happened, so many seconds at most; whether it has."""
        with self._changed:
            if not self._happened:
                self._changed.wait(timeout)
            return self._happened


def _acquire(lock: Any, timeout: Optional[float]) -> bool:
    return bool(lock.acquire() if timeout is None else lock.acquire(True, max(0.0, timeout)))
