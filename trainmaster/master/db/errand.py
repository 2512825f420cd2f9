"""How long the database may work on one statement, and for whom.

What waits for a statement (`presence`) looks here four times a second: one that takes too long is cancelled on the
server, and so is one that nobody waits for any more because the client of the request has gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OF_OURSELVES = 600.0  # seconds, for what no request asks: condensing, removing, the controller's questions


class Errand:
    """What statements are made for; the request's threads share it by their context."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # for each statement
        self.counted = False  # whether its time is counted as its user's
        self.gone = False  # set once nobody waits for the answer any more

    def over(self, waited: float) -> bool:
        """Whether a statement that has taken `waited` seconds is to be cancelled."""
        return self.gone or waited > self.seconds


OURS = Errand(OF_OURSELVES)
ERRAND: ContextVar[Errand] = ContextVar("errand", default=OURS)


@contextmanager
def unhurried() -> Iterator[None]:
    """Statements in the block may take as long as they need: migrations."""
    token = ERRAND.set(Errand(math.inf))
    try:
        yield
    finally:
        ERRAND.reset(token)
