"""Handles the scheduler's signals: as an exception before the user's process starts, as events afterwards."""

from __future__ import annotations

import queue
import signal
from types import FrameType
from typing import Optional, Tuple, Union

from trainmaster.runtime.errors import AskedToLeave

Event = Union[Tuple[str], Tuple[str, int]]  # ("exit", returncode), ("signal", number), ("gone",)

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)


class Signals:
    """SIGTERM, SIGINT, SIGHUP and SIGUSR2 raise AskedToLeave in the main thread until `as_events` is called;
    from then on they are put into `events`."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._raise = True

    def install(self) -> None:
        for number in _HANDLED:
            signal.signal(number, self._handle)
        # Libraries in the user's code use it among themselves (NCCL); for us it means nothing.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def as_events(self) -> None:
        """From now on put signals into `events` instead of raising."""
        self._raise = False

    def leave(self) -> None:
        """Ignore SIGUSR2 on the last steps of this process, when Python takes its handlers away."""
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def _handle(self, number: int, _: Optional[FrameType]) -> None:
        if self._raise:
            self._raise = False
            raise AskedToLeave("scheduler", number)
        self.events.put(("signal", number))
