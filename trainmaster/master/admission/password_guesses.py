"""Rate limit against password guessing.

It counts failed attempts: for a name from an address, for a name from anywhere, and from an address and from a network
under any name. Each count is free up to a number; beyond it every attempt doubles a wait. Only the first one affects a
user who has logged in under this name from this address before.

An address does not distinguish a guesser from the person whose password is guessed: a login node and a portal share
one address among all users. So a user who has logged in gets a mark, which the client keeps and sends at the next
log-in (`client_mark`); attempts with it are counted separately. Other people's wrong passwords do not delay them, from
whichever address they come. (OWASP: device cookies.)

The counts live in memory. A guess then costs the database nothing. A restart of the master, or a second master beside
it, gives a guesser a few dozen attempts more, which does not matter: good passwords take millions.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.master.services import addresses

log = logging.getLogger(__name__)

FORGOTTEN = 900.0  # seconds after the last attempt
KEPT = 20_000  # counts, and as many known good pairs of name and address


@dataclass(frozen=True)
class BackoffRule:
    """`free` attempts cost nothing; then the wait is one second, two, four ... up to `longest` seconds."""

    free: int
    longest: float

    def wait(self, attempts: int) -> float:
        over = attempts - self.free
        return 0.0 if over <= 0 else min(2.0 ** min(over - 1, 30), self.longest)


PAIR = BackoffRule(5, 300.0)
NAME = BackoffRule(30, 60.0)
ADDRESS = BackoffRule(100, 30.0)
NETWORK = BackoffRule(300, 30.0)


@dataclass
class _Count:
    attempts: int = 0
    last: float = -math.inf


Key = tuple[str, str]


class PasswordGuesses:
    """Thread-safe. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self._good: OrderedDict[Key, None] = OrderedDict()

    def begin(self, name: str, address: str, mark: str = "") -> float:
        """Return the seconds to wait before this attempt may be made; 0 when it may. It counts as failed until
        `succeeded`. `mark`: one of this name's, already checked; empty where the client sends none."""
        with self._lock:
            now = self._clock()
            rules = self._rules(name, address, mark)
            waits = {key: self._left(key, rule, now) for key, rule in rules.items()}
            left = max(waits.values())
            if left > 0:
                return left
            for key, rule in rules.items():
                count = self._counted(key, now)
                count.attempts, count.last = count.attempts + 1, now
                if count.attempts == rule.free + 1:
                    log.warning("attempts to log in as %r from %s are held back", name, address)
            return 0.0

    def knows(self, name: str, address: str, mark: str = "") -> bool:
        """Whether the client has logged in under this name before."""
        with self._lock:
            return bool(mark) or (name, address) in self._good

    def succeeded(self, name: str, address: str, mark: str = "") -> None:
        """Mark the attempt as successful."""
        with self._lock:
            for key in self._rules(name, address, mark):
                if key[1] and key[0]:
                    self._counts.pop(key, None)
                elif count := self._counts.get(key):
                    count.attempts -= 1
            self._good[name, address] = None
            self._good.move_to_end((name, address))
            while len(self._good) > KEPT:
                self._good.popitem(last=False)

    def withdrawn(self, name: str, address: str, mark: str = "") -> None:
        """Withdraw an attempt that was begun and not made."""
        with self._lock:
            for key in self._rules(name, address, mark):
                if count := self._counts.get(key):
                    count.attempts -= 1

    def _rules(self, name: str, address: str, mark: str) -> dict[Key, BackoffRule]:
        if mark:
            return {(name, f"mark {mark}"): PAIR}
        if (name, address) in self._good:
            return {(name, address): PAIR}
        whole = ("", f"network {addresses.network(address)}")
        return {(name, address): PAIR, (name, ""): NAME, ("", address): ADDRESS, whole: NETWORK}

    def _left(self, key: Key, rule: BackoffRule, now: float) -> float:
        count = self._counts.get(key)
        if count is None or now - count.last > FORGOTTEN:
            return 0.0
        return max(count.last + rule.wait(count.attempts) - now, 0.0)

    def _counted(self, key: Key, now: float) -> _Count:
        count = self._counts.get(key)
        if count is None or now - count.last > FORGOTTEN:
            count = self._counts[key] = _Count()
        self._counts.move_to_end(key)
        while len(self._counts) > KEPT:
            self._counts.popitem(last=False)
        return count
