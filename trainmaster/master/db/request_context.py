"""Marks what a thread works for: a request, with a time limit for each statement, or the master itself.

The loop that waits for a statement (`watchdog`) checks this four times a second. It cancels on the server a statement
that takes too long, or whose request's client has disconnected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from trainmaster.config.limits import DEFAULTS, Limits

P = ParamSpec("P")
T = TypeVar("T")

BACKGROUND_SECONDS = 600.0  # seconds, for work outside of requests: compaction, removal, the controller's queries


class RequestContext:
    """The context of one request; its threads share it (contextvars)."""

    def __init__(self, seconds: float, limits: Limits = DEFAULTS) -> None:
        self.seconds = seconds  # for each statement
        self.limits = limits  # for the fields of its body
        self.counted = False  # whether its work is counted as its user's
        self.worked = 0.0  # processor seconds that threads have spent on it
        self.gone = False  # set once the client has disconnected

    def over(self, waited: float) -> bool:
        """Whether a statement that has taken `waited` seconds must be cancelled."""
        return self.gone or waited > self.seconds


def worked(call: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that its processor time is counted."""

    @wraps(call)
    def noting(*args: P.args, **kwargs: P.kwargs) -> T:
        began = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            CURRENT.get().worked += time.thread_time() - began

    return noting


BACKGROUND = RequestContext(BACKGROUND_SECONDS)
CURRENT: ContextVar[RequestContext] = ContextVar("request", default=BACKGROUND)


@contextmanager
def without_deadline() -> Iterator[None]:
    """Statements in the block may take as long as they need: migrations."""
    token = CURRENT.set(RequestContext(math.inf))
    try:
        yield
    finally:
        CURRENT.reset(token)
