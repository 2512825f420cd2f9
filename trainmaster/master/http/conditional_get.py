"""Answers GETs of the API with an `ETag`, with 304 where the client has that answer already, and compressed.

Only whole answers to clients that decode gzip, or know an older answer, pass through it: browsers do. Streams have no
length and are passed on as they come, and so is everything that jobs and agents call: these ask often, and gain nothing
from it.
"""

from __future__ import annotations

import gzip
import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.http.caller_threads import CallerThreads, expect_caller

WITHIN = ("/api/", "/session", "/openapi.json")
NOT_FOR = ("/api/v1/allocations/", "/api/x1/allocations/", "/api/x1/agents/")
SMALLEST = 1024  # bytes that are worth compressing
LARGE = 64 * 1024  # bytes from which on it is a thread's work: a megabyte takes 10 ms
LEVEL, LEVEL_OF_LARGE = 5, 1
KINDS = ("application/json", "text/")  # users' archives and files are sent as they are


class ConditionalGet:
    """The ASGI application before FastAPI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and path.startswith(WITHIN)
            and not path.startswith(NOT_FOR)
            and ("gzip" in (asked := Headers(scope=scope)).get("accept-encoding", "") or "if-none-match" in asked)
        ):
            expect_caller(scope)
            send = _Answer(scope, asked, send)
        await self._app(scope, receive, send)


class _Answer:
    def __init__(self, scope: Scope, asked: Headers, send: Send) -> None:
        self._scope = scope
        self._asked, self._send = asked, send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("Cache-Control", "private, no-cache")
            headers.add_vary_header("Accept-Encoding")
            whole = message["status"] == 200 and "content-length" in headers and "content-encoding" not in headers
            if whole and headers.get("content-type", "").startswith(KINDS):
                self._start = message
                return
        elif self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body"):
                message = await self._finished(start, message["body"])
            else:  # in pieces, as large files
                await self._send(start)
        await self._send(message)

    async def _finished(self, start: Message, body: bytes) -> Message:
        """Send the beginning of the answer and return the rest."""
        headers = MutableHeaders(scope=start)
        # Weak: the same for the compressed answer.
        mark = headers.setdefault("ETag", f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')
        if mark in [one.strip() for one in self._asked.get("if-none-match", "").split(",")]:
            del headers["content-length"]
            await self._send({**start, "status": 304})
            return {"type": "http.response.body", "body": b""}
        if len(body) >= SMALLEST and "gzip" in self._asked.get("accept-encoding", ""):
            if len(body) >= LARGE:
                threads: CallerThreads = self._scope["app"].state.master.threads
                body = await threads.run_for_request(self._scope, _packed, body, LEVEL_OF_LARGE)
            else:
                body = _packed(body, LEVEL)
            headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(body))
        await self._send(start)
        return {"type": "http.response.body", "body": body}


def _packed(body: bytes, level: int) -> bytes:
    return gzip.compress(body, level, mtime=0)
