"""Counts live connections that have not shown a ticket yet. A new one is never refused: the oldest one is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

MOST_UNAUTHENTICATED = 64  # connections that have not shown a ticket yet ...
UNAUTHENTICATED_OF_ADDRESS = 32  # ... and those of one address


class UnauthenticatedConnections:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[asyncio.Event, None]] = {}  # in the order of their arrival

    @contextmanager
    def entered(self, address: str) -> Iterator[asyncio.Event]:
        """Count a connection in the block. The event is set when it must make room."""
        left = asyncio.Event()
        connections = self._by_address.setdefault(address, {})
        connections[left] = None
        if len(connections) > UNAUTHENTICATED_OF_ADDRESS:
            self._make_room(address)
        elif sum(map(len, self._by_address.values())) > MOST_UNAUTHENTICATED:
            self._make_room(max(self._by_address, key=lambda one: len(self._by_address[one])))
        try:
            yield left
        finally:
            self._forget(address, left)

    def _make_room(self, address: str) -> None:
        oldest = next(iter(self._by_address[address]))
        self._forget(address, oldest)
        oldest.set()

    def _forget(self, address: str, one: asyncio.Event) -> None:
        connections = self._by_address.get(address, {})
        connections.pop(one, None)
        if not connections:
            self._by_address.pop(address, None)
