"""Adds security headers to every response, and ends responses whose caller's session has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.http.session_guard import SCOPE_KEY, ConnectionHolder, SessionGuard

Headers = tuple[tuple[bytes, bytes], ...]
PASSED_ON = "trainmaster.passed"  # in the scope of a response from a service in a job: it has rules of its own

# No API response is a page, is shown in another site's frame, or is read by another site.
USUAL: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'self'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"same-origin"),
)
OF_SERVICES: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)


class SecurityHeaders:
    """The ASGI application before FastAPI."""

    def __init__(self, app: ASGIApp, guard: SessionGuard) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(self.guard, scope, receive, send)
        await self.app(scope, answer.receive, answer.send)
        await answer.end()


class _Answer:
    def __init__(self, guard: SessionGuard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._scope, self._receive, self._send = guard, scope, receive, send
        self._read = self._open = self._cut = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            usual = OF_SERVICES if PASSED_ON in self._scope else USUAL
            message = {**message, "headers": completed(message.get("headers", ()), usual)}
        self._open = message["type"] == "http.response.start" or message.get("more_body", False)
        await self._send(message)

    async def receive(self) -> Message:
        """Return the next message; once the request has been read, also the end of the caller's session, which ends the
        response as if the caller had disconnected."""
        holder: ConnectionHolder | None = self._scope.get(SCOPE_KEY) if self._read else None
        if holder is None:
            message = await self._receive()
            self._read = self._read or not message.get("more_body", False)
            return message
        with self._guard.watching(holder) as ended:
            coming, over = asyncio.ensure_future(self._receive()), asyncio.ensure_future(ended.wait())
            try:
                await asyncio.wait({coming, over}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    return coming.result()
            finally:
                coming.cancel()
                over.cancel()
        self._cut = True
        return {"type": "http.disconnect"}

    async def end(self) -> None:
        if self._cut and self._open:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def completed(headers: Sequence[tuple[bytes, bytes]], usual: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers, with those of `usual` that are not among them."""
    there = {name.lower() for name, _ in headers}
    return [*headers, *(entry for entry in usual if entry[0] not in there)]
