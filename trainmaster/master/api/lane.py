"""The fast lane of jobs: what every one of thousands says is taken in without a framework's ceremony.

It serves the same functions as the endpoints of `jobs`, only when all is as usual: a job's own token, a body that fits,
an answer without a fault. Everything else goes on to the application, which can say what is wrong; so these endpoints
must be such that a call can be made twice. Plain measurements of different jobs share transactions (services.intake).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.api import jobs
from trainmaster.master.api.dependencies import Services
from trainmaster.master.api.limits import OF_STRANGERS
from trainmaster.master.services import identity, intake
from trainmaster.master.services.identity import Caller

LONGEST = 1 << 20  # bytes of a body
THREADS = 8
GATES = 2  # one prepares while the database works for the other
TOGETHER = 64  # calls in one transaction
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
        self._waiting: deque[_Call] = deque()
        self._arrived = threading.Semaphore(0)  # once for each of them
        for number in range(GATES):
            threading.Thread(target=self._gather, name=f"gate-{number}", daemon=True).start()

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
        headers = dict(scope["headers"])
        said = headers.get(b"authorization", b"")
        if not said.lower().startswith(_SCHEME):
            return None
        token = said.decode("latin-1")[7:].strip()
        longest = LONGEST if token in self._known else OF_STRANGERS
        if int(headers.get(b"content-length", b"0")) > longest:  # digits only: the server sees to that
            return None
        if (body := await _body(receive, read, longest)) is None:
            return None
        call = _Call(allocation_id, verb, token, body)
        if verb == "reports":
            self._waiting.append(call)
            self._arrived.release()
        else:
            self._threads.submit(self._serve, call)
        return await call.answer

    def _serve(self, call: _Call) -> None:
        answer = None
        try:
            serve = _SERVED[call.verb][1]
            answer = _written(serve(self._services, call.allocation_id, self._read(call)))
        except Exception:  # noqa: S110 - the application meets it again, and says what it is
            pass
        _settle([(call, answer)])

    def _read(self, call: _Call) -> Any:
        if self._caller(call.token).allocation_id != call.allocation_id:
            raise PermissionError(call.allocation_id)
        return _SERVED[call.verb][0].model_validate_json(call.body)

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

    def _gather(self) -> None:
        """Take in what has come while the transaction before was under way, again and again."""
        while True:
            calls: dict[str, _Call] = {}
            self._arrived.acquire()
            while True:
                call = self._waiting.popleft()
                # Two of one allocation are not to be taken in together: the later may build on the earlier.
                other = calls.setdefault(call.allocation_id, call)
                if other is not call:
                    self._threads.submit(self._serve, call)
                if len(calls) >= TOGETHER or not self._arrived.acquire(blocking=False):
                    break
            self._take_in(list(calls.values()))

    def _take_in(self, calls: Sequence[_Call]) -> None:
        plain: list[tuple[_Call, intake.Sent]] = []
        rest: list[_Call] = []
        for call in calls:
            try:
                body = self._read(call)
            except Exception:  # the application meets it again, and says what it is
                _settle([(call, None)])
                continue
            if body.stream == "core" and intake.is_plain(body.records):
                plain.append((call, intake.Sent(call.allocation_id, body.first, body.records)))
            else:
                rest.append(call)
        for call in rest:
            self._threads.submit(self._serve, call)
        if not plain:
            return
        try:
            answers = intake.take_together(self._services.store, [sent for _, sent in plain])
        except Exception:  # for one of them, or a deadlock: each is tried by itself, and says it if it is its own
            answers = [None] * len(plain)
        together = list(zip((call for call, _ in plain), answers, strict=True))
        _settle([(call, _written(jobs.as_json(answer))) for call, answer in together if answer is not None])
        for call, answer in together:
            if answer is None:
                self._threads.submit(self._serve, call)


class _Call:
    """One request on its way; made in the event loop, whose future is settled from threads."""

    def __init__(self, allocation_id: str, verb: str, token: str, body: bytes) -> None:
        self.allocation_id, self.verb, self.token, self.body = allocation_id, verb, token, body
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes | None] = self.loop.create_future()


def _settle(answers: Sequence[tuple[_Call, bytes | None]]) -> None:
    def tell() -> None:
        for call, answer in answers:
            if not call.answer.done():  # whoever asked may have gone
                call.answer.set_result(answer)

    if answers:
        answers[0][0].loop.call_soon_threadsafe(tell)


def _written(answer: Json) -> bytes:
    return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()


async def _body(receive: Receive, read: list[Message], longest: int) -> bytes | None:
    """The whole body; None when it has more than `longest` bytes, or breaks off."""
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        read.append(message)
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > longest:
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
