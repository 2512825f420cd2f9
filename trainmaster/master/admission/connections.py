"""Limits the number of connections per address and per user, and closes connections that stay silent too long.

uvicorn waits for ever for the rest of a request and accepts any number of connections. Here the head of a request, and
every 64 KB of its body, have a deadline. An address may hold only so many connections on which no request has named
its user yet, and a user only so many. Before the process runs out of file descriptors, new connections are refused
with a message.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import resource
from collections.abc import Callable, Hashable
from typing import Any

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainmaster.config.limits import Limits

log = logging.getLogger(__name__)

MOST_DESCRIPTORS = 65_536  # where the system would allow more, programs that close all of them would take long
STRANGERS = 4  # one of so many connections may be one on which no request has named its user
SPARE = 5  # one of so many descriptors is kept for the database, files and jobs
LONGEST_HEAD = 64 * 2**10  # bytes
PROGRESS = 64 * 2**10  # bytes that a body must bring in limits.body seconds
RETRY_AFTER = 5  # seconds, of those that are refused
LIVE = "/api/x1/live"  # the end of a path; `api.live` serves it
LONGEST_MESSAGE = 8192  # bytes of a message to it
_SENDER = "trainmaster.note_sender"


def raise_descriptors() -> int:
    """Raise the limit of file descriptors as far as the system allows; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def note_sender(scope: Scope, who: Hashable) -> None:
    """Count the connection of this request for an authenticated sender from now on. From any thread."""
    hear: Callable[[Hashable], None] | None = scope.get("state", {}).get(_SENDER)
    if hear is not None:
        hear(who)


class Connections:
    """The connections of one server: makes their protocols and counts them."""

    def __init__(self, limits: Limits, descriptors: int, logged_in: Callable[[str], None] = lambda _: None) -> None:
        self.limits = limits
        self._logged_in = logged_in
        self._most = min(limits.connections, descriptors - descriptors // SPARE)
        # Connections in order of arrival, by address while their user is unknown, then by user.
        self._anonymous: dict[str, dict[_Connection, None]] = {}
        self._known: dict[Hashable, dict[_Connection, None]] = {}
        self._strangers = 0  # anonymous connections
        self._refused = 0

    def protocol(self, *args: Any, **kwargs: Any) -> _Connection:
        """Return what uvicorn's `http` wants: a factory."""
        return _Connection(self, *args, **kwargs)

    def enter(self, connection: _Connection) -> str | None:
        """Count a new connection; return a sentence that says why it must be closed, or None."""
        connection.place = self._anonymous.setdefault(connection.address, {})
        connection.place[connection] = None
        self._strangers += 1
        if len(connection.connections) > self._most and not self._make_room(connection):
            return f"The master has {self._most} open connections (limits.connections); try again in a moment."
        strangers = max(self._most // STRANGERS, 1)
        if self._strangers > strangers and not self._make_room(connection):
            return (
                f"The master has {strangers} open connections on which nobody has logged in, all that it may have of "
                f"its {self._most} (limits.connections); try again in a moment."
            )
        if len(connection.place) > self.limits.anonymous_connections and not self._shorten(
            connection.place, connection
        ):
            return (
                f"{self.limits.anonymous_connections} connections from {connection.address} are open on which nobody "
                "has logged in (limits.anonymous_connections); close some."
            )
        return None

    def leave(self, connection: _Connection) -> None:
        self._forget(connection)

    def belongs_to(self, connection: _Connection, who: Hashable) -> None:
        if connection.place is None or connection.who == who:
            return
        self._logged_in(connection.address)
        self._forget(connection)
        connection.who = who
        connection.place = self._known.setdefault(who, {})
        connection.place[connection] = None
        if len(connection.place) > self.limits.user_connections:
            self._shorten(connection.place, connection)

    def _make_room(self, newcomer: _Connection) -> bool:
        """End an unauthenticated connection of the address that holds most of these."""
        return self._shorten(max(self._anonymous.values(), key=len), newcomer)

    def _shorten(self, place: dict[_Connection, None], newcomer: _Connection) -> bool:
        """End the oldest idle one of these connections; return whether there was one."""
        idle = next((one for one in place if one is not newcomer and one.idle), None)
        if idle is None:
            return False
        self._forget(idle)  # now: of hundreds that arrive in one turn of the event loop each makes room for itself
        idle.end()
        return True

    def _forget(self, connection: _Connection) -> None:
        place, connection.place = connection.place, None
        if place is None:
            return
        self._strangers -= connection.who is None
        place.pop(connection, None)
        if not place:
            if connection.who is None:
                self._anonymous.pop(connection.address, None)
            else:
                self._known.pop(connection.who, None)

    def note_refusal(self, sentence: str) -> None:
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:  # the first, second, fourth, ...
            log.warning("a connection was refused, number %d: %s", self._refused, sentence)


class _Connection(HttpToolsProtocol):
    """One connection: uvicorn's, with deadlines."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self.address = ""
        self.who: Hashable | None = None
        self.place: dict[_Connection, None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head: int | None = 0  # bytes of a head that is not complete; None: a body, or an answer, is under way
        self._body_comes = False
        self._body = 0  # bytes of it since the last check

    @property
    def idle(self) -> bool:
        """Whether no request is being served on it: none came, or it is not complete."""
        return self._head is not None or self.cycle is None or self.cycle.response_complete

    def end(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    # -- what uvicorn and the parser call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if sentence := self._connections.enter(self):
            self._connections.note_refusal(sentence)
            self._refuse(503, sentence)
            return
        self._set_timer(self._connections.limits.header, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head is None and not self._body_comes and (self.cycle is None or self.cycle.response_complete):
            self._head = 0
        super().data_received(data)
        # Most requests are complete at once: only others have a deadline.
        if self._head is not None:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._refuse(431, f"The head of a request may have {LONGEST_HEAD} bytes.")
            elif self._timer is None:
                self._set_timer(self._connections.limits.header, self._too_slow)
        elif self._body_comes and self._timer is None:
            self._set_timer(self._connections.limits.body, self._look_at_body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][_SENDER] = self._sender_noted

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._head, self._body, self._body_comes = None, 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._body_comes = False
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._stop_timer()
        self._connections.leave(self)  # its server counts it from now on
        if self.url.partition(b"?")[0].endswith(LIVE.encode()):
            self.config = _of_small_messages(self.config)
        super().handle_websocket_upgrade()

    def _sender_noted(self, who: Hashable) -> None:
        if who != self.who:
            self.loop.call_soon_threadsafe(self._connections.belongs_to, self, who)

    # -- deadlines

    def _look_at_body(self) -> None:
        """Check the body's rate. A body that this side does not read is not the client's fault."""
        if self._body < PROGRESS and not self.flow.read_paused:
            self._too_slow()
            return
        self._body = 0
        self._set_timer(self._connections.limits.body, self._look_at_body)

    def _too_slow(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.end()  # an answer may be half sent
        else:
            self._refuse(408, "The request did not come in time (limits.header, limits.body).")

    def _refuse(self, status: int, sentence: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(plain_answer(status, sentence))
        self.end()

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _of_small_messages(config: Config) -> Config:
    """For pages that wait for news: they have not authenticated yet, and there are many of them. Compressing takes
    0.2 MB for each."""
    small = copy.copy(config)
    small.ws_max_size, small.ws_per_message_deflate = LONGEST_MESSAGE, False
    return small


def plain_answer(status: int, sentence: str) -> bytes:
    """Return a whole answer for a connection that is closed after it."""
    body = sentence.encode()
    head = f"HTTP/1.1 {status} {_WORDS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    if status == 503:
        head += f"retry-after: {RETRY_AFTER}\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


_WORDS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}
