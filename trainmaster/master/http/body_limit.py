"""Limits size and shape of requests per kind of caller; larger ones are refused before they are parsed or stored."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.config.limits import Limits
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http.error_envelope import envelope, explained, note_refusal
from trainmaster.master.services.errors import ServiceError

LINGER = 30.0  # seconds for which the rest of a refused body is read and thrown away
# Bytes that anybody may send: a log-in has a hundred. FastAPI reads a body before it authenticates its sender.
OF_STRANGERS = 64 * 2**10
# A body of this many bytes counts as large: parsing it takes five times its memory for a moment, so that no more
# than so many are parsed at once. Any number may be received at once.
LARGE = 8 * 2**20
LARGE_AT_ONCE = 2
# An archive of a container's files is written to disk piece by piece, under a limit of its own.
_OWN_LIMIT = re.compile("/api/x1/agents/[^/]+/jobs/[^/]+/remains")
_PASSED_ON = "/proxy/"  # these bodies are not parsed
_CLOSE = {"Connection": "close"}


class Senders(Protocol):
    """Interface to the accounting of authenticated senders of large bodies."""

    async def rest(self, scope: Scope) -> None:
        """Wait, before a body is received, where its sender has kept the master busy."""

    def turn(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """In the block a body may be parsed. Raises Busy."""

    def charge(self, scope: Scope, size: int) -> None:
        """Count received bytes."""


class BodyLimit:
    """Answers 413 to requests whose body has more than `limit` bytes, by their headers or as it arrives. For a body of
    more than OF_STRANGERS, `admit` is called first: it raises a ServiceError for an unknown sender. Parsing
    waits for the sender's `turn`: one body of a user is parsed at a time.

    Most clients read the response only when they have sent everything, and closing the connection before loses
    it. So the response is sent, and the rest of the body is read for a while before the connection is closed.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        admit: Callable[[Scope], Awaitable[None]],
        senders: Senders,
    ) -> None:
        limit = limits.request_mb * 2**20
        self._senders = senders
        self._app, self._limits, self._limit, self._admit = app, limits, limit, admit
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)
        self._sentence = (
            f"The body of a request may have {limit} bytes ({limit // 2**20} MB), and this one has more. Send less, or "
            "ask the administrator for a larger limits.request."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _OWN_LIMIT.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        counted = _Counted(self, scope, receive, send)
        headers = dict(scope["headers"])
        announced = int(headers.get(b"content-length", b"0"))  # digits only: the server sees to that
        try:
            await counted.expect(announced)
        except HTTPException as error:
            waits = headers.get(b"expect", b"").lower() == b"100-continue"  # for permission to send
            ending = send if waits else _Lingering(receive, send)
            await envelope(error.status_code, error.detail, headers=_CLOSE)(scope, receive, ending)
            return
        async with contextlib.AsyncExitStack() as until_answered:
            if not scope["path"].startswith(_PASSED_ON):
                counted.when_large = lambda: until_answered.enter_async_context(self._places)
                counted.when_known = lambda: until_answered.enter_async_context(self._senders.turn(scope))
            try:
                await self._app(scope, counted.receive, counted.send)
            finally:
                self._senders.charge(scope, counted.size)

    def check_values(self, count: int) -> None:
        """Raise HTTPException for JSON of which so many objects would be made that they take fifty times its room, and
        seconds in which nobody else is served."""
        if excess := self._limits.over("request_values", count, "The request's JSON holds {} values or more"):
            raise HTTPException(413, excess, headers=_CLOSE)

    async def check(self, scope: Scope, size: int, *, admitted: bool) -> bool:
        """Check a request that has this many bytes so far, and admit its sender. Raises HTTPException."""
        if size > self._limit:
            raise HTTPException(413, self._sentence, headers=_CLOSE)
        if admitted or size <= OF_STRANGERS:
            return admitted
        try:
            await self._admit(scope)
        except (ServiceError, *DATABASE_UNAVAILABLE) as error:
            status, sentence = explained(error)
            note_refusal(HTTPConnection(scope), sentence)
            raise HTTPException(status, sentence, headers=_CLOSE) from None
        if not scope["path"].startswith(_PASSED_ON):
            try:
                await self._senders.rest(scope)
            except ServiceError as error:
                raise HTTPException(*explained(error), headers=_CLOSE) from None
        return True


class _Counted:
    """A request whose body is counted as it arrives; over a limit, its reader gets the refusal."""

    def __init__(self, rule: BodyLimit, scope: Scope, receive: Receive, send: Send) -> None:
        self._rule, self._scope = rule, scope
        self.size = 0  # bytes so far
        self._values = 0
        self._passed_on = scope["path"].startswith(_PASSED_ON)
        self._admitted, self._refused = False, False
        self.when_large: Callable[[], Awaitable[None]] | None = None  # awaited once, when a large body is complete
        self.when_known: Callable[[], Awaitable[None]] | None = None  # the same, when it exceeds OF_STRANGERS
        self._receive, self._send = receive, send

    async def expect(self, size: int) -> None:
        """Check a body of so many bytes. Raises HTTPException."""
        self._admitted = await self._rule.check(self._scope, size, admitted=self._admitted)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            body = message.get("body", b"")
            self.size += len(body)
            if not self._passed_on and self.size > OF_STRANGERS // 2:
                self._values += body.count(b",") + body.count(b"[") + body.count(b"{")
            try:
                await self.expect(self.size)
                self._rule.check_values(self._values)
            except HTTPException:
                self._refused = True
                raise
            if self._admitted and not message.get("more_body", False) and self.when_known is not None:
                turn, self.when_known = self.when_known(), None
                try:
                    await turn
                except ServiceError as error:
                    self._refused = True
                    raise HTTPException(*explained(error), headers=_CLOSE) from None
            if self.size > LARGE and not message.get("more_body", False) and self.when_large is not None:
                waiting, self.when_large = self.when_large(), None
                await waiting
        return message

    async def send(self, message: Message) -> None:
        if self._refused and message["type"] == "http.response.start":
            self._send = _Lingering(self._receive, self._send)
        await self._send(message)


class _Lingering:
    """Sends a response, and holds back its end until the request has been read to its end."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        try:
            async with asyncio.timeout(LINGER):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            pass
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
