"""Turns of pages to read: each hint makes a page read something, and all pages together may read so often.

Users take turns with each other: however many topics of one user wait, another user's next hint is the next but one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from trainmaster.master.admission.token_buckets import TokenBuckets

# Each hint makes a page read something, which takes the master 5 to 10 ms of processor time: so many a second, however
# many pages there are, cost a tenth of a core. BURST of them may come at once.
READS = 10.0
BURST = 2.0  # seconds' worth


class ReadTurn:
    """One hint's turn. `given` is called in the event loop when its time has come."""

    def __init__(self, user_id: int, given: Callable[[], None]) -> None:
        self.user_id, self.given = user_id, given
        self.is_given = False


class ReadTurns:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, OrderedDict[ReadTurn, None]] = OrderedDict()  # by user, the next one first
        self._reads = TokenBuckets(READS, BURST, most=1)
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, user_id: int, given: Callable[[], None]) -> ReadTurn:
        turn = ReadTurn(user_id, given)
        self._waiting.setdefault(user_id, OrderedDict())[turn] = None
        self._give()
        return turn

    def withdraw(self, turn: ReadTurn) -> None:
        """For a hint that is not sent: the turn is given to the next one."""
        if turn.is_given:
            self._reads.give_back("reads")
        else:
            self._forget(turn)
        self._give()

    def _forget(self, turn: ReadTurn) -> None:
        turns = self._waiting.get(turn.user_id)
        if turns is not None:
            turns.pop(turn, None)
            if not turns:
                del self._waiting[turn.user_id]

    def _give(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            if wait := self._reads.owed("reads"):
                self._timer = asyncio.get_running_loop().call_later(wait, self._give)
                return
            user_id, turns = next(iter(self._waiting.items()))
            turn = next(iter(turns))
            self._waiting.move_to_end(user_id)
            self._forget(turn)
            self._reads.take("reads")
            turn.is_given = True
            turn.given()
