"""Signals from the scheduler, first as an exception, later as events."""

from __future__ import annotations

import _queue as queue
from types import FrameType

from trainmaster.runtime.errors import AskedToLeave

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Optional, Tuple, Union

    Event = Union[Tuple[str], Tuple[str, int]]  # ("exit", returncode), ("signal", number), ("gone",)
else:
    import _signal as signal  # the names that `signal` adds cost every job 3 ms of CPU

_HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)


class Signals:
    """SIGTERM, SIGINT, SIGHUP and SIGUSR2 raise AskedToLeave in the main thread until `as_events` is called;
    from then on they are put into `events`."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._raise = True

    def install(self) -> None:
        for number in _HEEDED:
            signal.signal(number, self._handle)
        # Libraries in the user's code use it among themselves (NCCL); for us it means nothing.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def as_events(self) -> None:
        """Raise no more."""
        self._raise = False

    def leave(self) -> None:
        """Nothing may end this process on its last steps, when its handlers are being taken apart."""
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def _handle(self, number: int, _: Optional[FrameType]) -> None:
        if self._raise:
            self._raise = False
            raise AskedToLeave("scheduler", number)
        self.events.put(("signal", number))
