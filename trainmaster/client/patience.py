"""Waits for a master or its database that are away, in calls that wait for something or follow it.

Ordinary calls fail after a few seconds. A wait or a followed log retries for DET_PATIENCE (600) seconds, and prints one
line when it begins to wait and one when the master answers again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from trainmaster.client.errors import ClientError, HostNotFound, MasterUnreachable, NotTrusted

VARIABLE = "DET_PATIENCE"
DEFAULT = 600.0  # seconds
PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each new try, beside those of the transport; the last one repeats

T = TypeVar("T")
Notice = Callable[[str], None]


class Patience:
    """How long one wait endures a master that does not answer, and how long it has been away. Not thread-safe.

    Args:
        seconds: Of one absence; None: DET_PATIENCE, else 600. 0 fails at once.
        notice: Called with a sentence when the master is away and when it is back; None logs a warning.
    """

    def __init__(self, seconds: float | None = None, notice: Notice | None = None) -> None:
        self.seconds = _configured() if seconds is None else seconds
        self._notice = notice or _warn
        self._since: float | None = None
        self._tries = 0
        self._answered = False

    def ask(self, read: Callable[[], T]) -> T:
        """Return what `read` returns, calling it again while the master is away. Raises as `read` does; and
        MasterUnreachable after `seconds`."""
        while True:
            try:
                answer = read()
            except MasterUnreachable as error:
                self.away(error)
            else:
                self.back()
                return answer

    def away(self, error: MasterUnreachable) -> None:
        """Take note that the master did not answer, and pause before the next try. Raises `error` when the time is
        over, or when waiting would not help."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        hopeless = isinstance(error, NotTrusted) or (isinstance(error, HostNotFound) and not self._answered)
        left = self._since + self.seconds - now
        if hopeless or left <= 0:
            raise error
        self._tries += 1
        if self._tries == 2:  # the first try after a short break is nobody's concern
            self._notice(f"{error.what} Waiting for it, {_words(self.seconds)} at most.")
        time.sleep(min(PAUSES[min(self._tries, len(PAUSES)) - 1], left))

    def back(self) -> None:
        """Take note that the master answered."""
        if self._since is not None and self._tries >= 2:
            self._notice(f"The master answers again after {_words(time.monotonic() - self._since)}.")
        self._since, self._tries, self._answered = None, 0, True


def followed(
    read: Callable[[int, bool], Iterator[T]],
    number: Callable[[T], int],
    has_ended: Callable[[], bool],
    last: int,
    patience: Patience,
) -> Iterator[T]:
    """Yield all lines of a log behind number `last`, each once, until what writes it has ended.

    Args:
        read: Opens a stream of the lines behind a number; True: it continues while there may be more.
        number: The number of a line; they ascend.
        has_ended: Whether no more lines will be written.
        last: Number of the last line that is known; 0 for none.
        patience: For a master that is away.
    """
    while True:
        # Asked first: a master that is stopped in an orderly way ends its streams as if there were no more.
        over = patience.ask(has_ended)
        try:
            for line in read(last, not over):
                patience.back()
                if number(line) > last:  # a master that does not know `afterId` sends all lines again
                    last = number(line)
                    yield line
        except MasterUnreachable as error:
            patience.away(error)
            continue
        if over:
            return


def _configured() -> float:
    given = os.environ.get(VARIABLE, "")
    try:
        seconds = float(given) if given else DEFAULT
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ClientError(f"{VARIABLE} must be a number of seconds, found {given!r}.")
    return seconds


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _warn(text: str) -> None:
    import logging

    logging.getLogger("trainmaster").warning(text)
