"""Decides which password is checked next. A check takes 64 MiB and a core for a twentieth of a second: few at once.

Known clients, which show a mark of an earlier log-in or come from where their user has logged in, never wait for
strangers. Among the known, users take turns; among strangers, networks do: a sender of many waits for its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from trainmaster.master.admission.fair_queue import FairQueue
from trainmaster.master.services.errors import Busy

AT_ONCE = 2  # checks of known clients, and as many of strangers
MOST_WAITING = 100  # of one user, or of one network


class PasswordChecks:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._known, self._strangers = FairQueue(lambda: AT_ONCE), FairQueue(lambda: AT_ONCE)

    @asynccontextmanager
    async def turn(self, who: Hashable, *, known: bool) -> AsyncIterator[None]:
        """In the block a password may be checked. `who`: the user of a known client, the network of a stranger. Raises
        Busy."""
        queue = self._known if known else self._strangers
        if not queue.try_enter():
            if queue.waiting(who) >= MOST_WAITING:
                raise Busy("Too many log-ins from your network wait already; try again in a moment.")
            await queue.enter(who)
        try:
            yield
        finally:
            queue.leave()
