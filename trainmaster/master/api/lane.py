"""The fast lane of jobs: what every one of thousands says is taken in without a framework's ceremony.

It serves the same functions as the endpoints of `jobs`, only when all is as usual: a job's own token, a body that fits,
an answer without a fault. Everything else goes on to the application, which can say what is wrong; so these endpoints
must be such that a call can be made twice.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.api import jobs
from trainmaster.master.api.dependencies import Services
from trainmaster.master.services import identity
from trainmaster.master.services.identity import Caller

LONGEST = 1 << 20  # bytes of a body
THREADS = 8
KNOWN_FOR = 60.0  # seconds for which a job's token is not asked about again
MOST_KNOWN = 10_000
_PATH = re.compile("/api/x1/allocations/([^/]+)/(lease|reports|exit)")
_SCHEME = b"bearer alloc:"

Json = dict[str, Any]
_SERVED: dict[str, tuple[type[BaseModel], Callable[[Services, str, Any], Json]]] = {
    "lease": (jobs.Lease, jobs.give_lease),
    "reports": (jobs.Reports, jobs.take_reports),
    "exit": (jobs.ExitRecord, jobs.take_exit),
}


class Lane:
    """An ASGI application in front of `app`."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app, self._services = app, services
        self._threads = ThreadPoolExecutor(THREADS, "lane")
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not (path := _PATH.fullmatch(scope["path"])):
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        answer = await self._answer(path[1], path[2], scope, receive, read)
        if answer is None:
            await self._app(scope, _again(read, receive), send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(
        self, allocation_id: str, verb: str, scope: Scope, receive: Receive, read: list[Message]
    ) -> bytes | None:
        """None: for the application to say. `read` gets what was read of the request."""
        said = dict(scope["headers"]).get(b"authorization", b"")
        if not said.lower().startswith(_SCHEME):
            return None
        body = await _body(receive, read)
        if body is None:
            return None
        work = self._threads.submit(self._serve, allocation_id, verb, said.decode("latin-1")[7:].strip(), body)
        return await asyncio.wrap_future(work)

    def _serve(self, allocation_id: str, verb: str, token: str, body: bytes) -> bytes | None:
        shape, serve = _SERVED[verb]
        try:
            if self._caller(token).allocation_id != allocation_id:
                return None
            answer = serve(self._services, allocation_id, shape.model_validate_json(body))
            return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
        except Exception:
            return None

    def _caller(self, token: str) -> Caller:
        """Several threads may ask for the same one; the last one's answer is kept."""
        at = time.monotonic()
        known = self._known.get(token)
        if known is not None and at - known[0] < KNOWN_FOR:
            return known[1]
        caller = identity.authenticate(self._services.store, self._services.settings, token)
        self._known[token] = at, caller
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return caller


async def _body(receive: Receive, read: list[Message]) -> bytes | None:
    """The whole body; None when it is too long for the lane, or breaks off."""
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        read.append(message)
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > LONGEST:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(read: list[Message], receive: Receive) -> Callable[[], Awaitable[Message]]:
    """`receive` for somebody who is to hear what has been read as well."""
    left = iter(read)

    async def hear() -> Message:
        for message in left:
            return message
        return await receive()

    return hear
