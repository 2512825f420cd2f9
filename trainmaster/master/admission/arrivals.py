"""Limits how many connections arrive: from one address, and from all addresses that nobody is known to log in from.

A connection costs the master a hundred times as much once the HTTP server has it as one that is refused here.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.master.admission.connections import plain_answer
from trainmaster.master.admission.token_buckets import TokenBuckets
from trainmaster.master.services import addresses
from trainmaster.master.services.addresses import Network

BURST = 5.0  # seconds' worth of connections that may come at once
KNOWN_FOR = 3600.0  # seconds after a request with a valid token from an address
MOST_ADDRESSES = 50_000
TOGETHER = 32  # connections that are accepted before other work has its turn
DISCARDED = 64 * 2**10  # bytes of a refused request that are read: unread ones would cost its client the answer


class Arrivals:
    """Decides about new connections. Belongs to the event loop. `exempt`: the addresses of trusted proxies."""

    def __init__(
        self,
        limits: Limits,
        exempt: Sequence[Network] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._exempt, self._clock = limits.connection_rate, exempt, clock
        self._by_address = TokenBuckets(self._rate, BURST, MOST_ADDRESSES, clock)
        self._of_strangers = TokenBuckets(self._rate / 2, BURST, 1, clock)  # of all unknown addresses together
        self._known: OrderedDict[str, float] = OrderedDict()  # by address: when somebody was last seen there

    def logged_in(self, address: str) -> None:
        """Note that a request from this address had a valid token."""
        self._known[address] = self._clock()
        self._known.move_to_end(address)
        if len(self._known) > MOST_ADDRESSES:
            self._known.popitem(last=False)

    def refusal(self, address: str) -> str | None:
        """Return a sentence that says why a new connection is refused, or None."""
        if self._exempt and self._is_proxy(address):
            return None
        now = self._clock()
        known = now - self._known.get(address, -KNOWN_FOR) < KNOWN_FOR
        if not self._by_address.try_take(address):
            whose, rate = address, float(self._rate)
        elif not known and not self._of_strangers.try_take("strangers"):
            whose, rate = "addresses at which nobody has logged in lately", self._rate / 2
        else:
            return None
        return (
            f"More than {rate:g} connections a second come from {whose} (limits.connection_rate): try again in a "
            "moment, and use a connection for more than one request."
        )

    def _is_proxy(self, address: str) -> bool:
        parsed = addresses.canonical(addresses.seen(address))
        return parsed is not None and addresses.within(parsed, self._exempt)


class FairListener(socket.socket):
    """A listening socket. asyncio calls `accept` until it raises BlockingIOError: here that is after `TOGETHER`
    connections, so that thousands that come at once do not hold up requests.

    `says_why`: whether the other side can read plain HTTP."""

    arrivals: Arrivals | None = None
    says_why = True
    _left = TOGETHER

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            if not self._left:
                self._left = TOGETHER
                raise BlockingIOError
            self._left -= 1
            try:
                connection, address = super().accept()
            except BlockingIOError:
                self._left = TOGETHER
                raise
            sentence = self.arrivals.refusal(address[0]) if self.arrivals is not None else None
            if sentence is None:
                return connection, address
            with connection, contextlib.suppress(OSError):
                connection.setblocking(False)
                if self.says_why:
                    connection.send(plain_answer(503, sentence))
                    connection.recv(DISCARDED)
