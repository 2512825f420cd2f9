"""Cancels the database statements of a request whose client has disconnected."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.config.limits import Limits
from trainmaster.master.db.request_context import CURRENT, RequestContext

PATIENCE = 1.0  # seconds before the first check for the client: most requests are over by then


class StatementCancellation:
    """An ASGI application in front of `app`. `limits`: among them the seconds that
    the database may work on one statement."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        context = RequestContext(float(self._limits.statement), self._limits)
        token = CURRENT.set(context)
        try:
            if scope["type"] != "http":
                await self._app(scope, receive, send)
                return
            client = _Client(context, receive)
            look = asyncio.get_running_loop().call_later(PATIENCE, client.watch)
            try:
                await self._app(scope, client.receive, send)
            finally:
                look.cancel()
                client.stop()
        finally:
            CURRENT.reset(token)


class _Client:
    """Passes on the messages of a request, and notices when its client disconnects."""

    def __init__(self, context: RequestContext, receive: Receive) -> None:
        self._context, self._receive = context, receive
        self._one = asyncio.Lock()  # of two readers that wait for a piece of a body, one would get nothing
        self._ended = False  # the body is complete
        self._kept: deque[Message] = deque()  # messages that the watcher has received for the reader of the body
        self._watcher: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        async with self._one:
            return self._kept.popleft() if self._kept else self._noted(await self._receive())

    def watch(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        while not self._context.gone:
            if self._kept and not self._ended:  # a piece at a time
                await asyncio.sleep(PATIENCE)
                continue
            async with self._one:
                self._kept.append(self._noted(await self._receive()))

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect":
            self._context.gone = True
        elif not message.get("more_body", False):
            self._ended = True
        return message
