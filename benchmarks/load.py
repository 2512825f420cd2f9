"""Load generator: many clients in one thread, each with its own connection and one request at a time.

The clients share the machine with what is measured. Threads, or a library's client, would cost a fifth of the machine;
this costs a twentieth, and asks no less: real HTTP/1.1, every answer read to its end and checked.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from benchmarks.measure import Sample

PATIENCE = 60.0  # seconds without any answer after which the server counts as hung
TAILS = (0.95, 0.99)
_HEAD_END = b"\r\n\r\n"
_BLOCK = 1 << 18


class Refused(RuntimeError):
    """An answer was an error or did not arrive; the message has the details."""


class Talker(Protocol):
    """What one client says."""

    def ask(self) -> bytes:
        """The next request, of `post`."""

    def hear(self, answer: Any) -> None:
        """Raises Refused for an answer (JSON) that is not what it should be."""


def post(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + _HEAD_END + body


def flood(port: int, talkers: Sequence[Talker], seconds: float) -> tuple[float, Sample]:
    """Answers a second to all together, and how long each took. Requests under way at the end are waited for.

    Each answer brings the next client in, and time counts from the last one's connection: of clients that come at once
    a single one of a server's workers may get all. Raises Refused, OSError."""
    waits: list[float] = []
    to_come = deque(talkers)
    clients: list[_Client] = []
    with selectors.DefaultSelector() as selector:
        try:
            while to_come or selector.get_map():
                if to_come:
                    clients.append(_Client(to_come.popleft(), port, selector))
                    clients[-1].start()
                    started = time.perf_counter()
                    until = started + seconds
                    waits.clear()
                for client in _answered(selector):
                    waits.append(client.took * 1000)
                    if time.perf_counter() < until:
                        client.start()
                    else:
                        client.stop()
            took = time.perf_counter() - started
        finally:
            for client in clients:
                client.close()
    return len(waits) / took, Sample(waits, tails=TAILS)


def _answered(selector: selectors.BaseSelector) -> list[_Client]:
    """Those whose answers are complete; at least one."""
    found: list[_Client] = []
    while not found:
        ready = selector.select(PATIENCE)
        if not ready:
            raise Refused(f"no answer within {PATIENCE:.0f} s")
        found = [key.data for key, _ in ready if key.data.go_on()]
    return found


class _Client:
    def __init__(self, talker: Talker, port: int, selector: selectors.BaseSelector) -> None:
        self._talker, self._selector = talker, selector
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._left = memoryview(b"")
        self._heard = bytearray()
        self._started = self.took = 0.0
        self._events = 0

    def start(self) -> None:
        request = self._talker.ask()
        self._started = time.perf_counter()
        self._left = memoryview(request)
        self._send()

    def go_on(self) -> bool:
        """Whether the answer is complete; then `took` says after how many seconds."""
        if self._left:
            self._send()
            return False
        block = self._socket.recv(_BLOCK)
        if not block:
            raise Refused(f"the connection was closed after {bytes(self._heard[:300])!r}")
        self._heard += block
        end = self._heard.find(_HEAD_END)
        if end < 0:
            return False
        head, body = bytes(self._heard[:end]), bytes(self._heard[end + len(_HEAD_END) :])
        if len(body) < _length(head):
            return False
        self.took = time.perf_counter() - self._started
        self._heard.clear()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise Refused((head.splitlines()[0] + b": " + body[:300]).decode(errors="replace"))
        self._talker.hear(json.loads(body))
        return True

    def stop(self) -> None:
        self._watch(0)

    def close(self) -> None:
        self._socket.close()

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._left = self._left[self._socket.send(self._left) :]
        self._watch(selectors.EVENT_WRITE if self._left else selectors.EVENT_READ)

    def _watch(self, events: int) -> None:
        if events == self._events:
            return
        if not self._events:
            self._selector.register(self._socket, events, self)
        elif events:
            self._selector.modify(self._socket, events, self)
        else:
            self._selector.unregister(self._socket)
        self._events = events


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise Refused(f"the answer does not say its length: {head!r}")
