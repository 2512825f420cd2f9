"""How much one request may bring: more is refused before anything of it is parsed or kept."""

from __future__ import annotations

import asyncio
import re

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.api.failures import envelope

LINGER = 30.0  # seconds for which the rest of a refused body is read and thrown away
# What a container left is written to disk piece by piece, under a limit of its own.
_OWN_LIMIT = re.compile("/api/x1/agents/[^/]+/jobs/[^/]+/remains")


class BodyLimit:
    """Answers 413 to requests whose body has more than `limit` bytes, by their headers or as it comes.

    Most clients read the answer only when they have sent everything, and a connection that is closed before loses
    it. So the answer goes out, and what still comes is read for a while before the connection is closed.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit
        self._sentence = (
            f"The body of a request may have {limit} bytes ({limit // 2**20} MB), and this one has more. Send less, or "
            "ask the administrator for a larger limits.request."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _OWN_LIMIT.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if int(headers.get(b"content-length", b"0")) > self._limit:  # digits only: the server sees to that
            waits = headers.get(b"expect", b"").lower() == b"100-continue"  # for leave to send, which it does not get
            ending = send if waits else _Lingering(receive, send)
            await envelope(413, self._sentence, headers={"Connection": "close"})(scope, receive, ending)
            return
        counted = _Counted(self._limit, self._sentence, receive, send)
        await self._app(scope, counted.receive, counted.send)


class _Counted:
    """A request whose body is counted as it comes; over the limit, whoever reads it gets the refusal."""

    def __init__(self, limit: int, sentence: str, receive: Receive, send: Send) -> None:
        self._left, self._sentence = limit, sentence
        self._receive, self._send = receive, send

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise HTTPException(413, self._sentence, headers={"Connection": "close"})
        return message

    async def send(self, message: Message) -> None:
        if self._left < 0 and message["type"] == "http.response.start":
            self._send = _Lingering(self._receive, self._send)
        await self._send(message)


class _Lingering:
    """Sends an answer, and holds its end back until the request is read to its own."""

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
