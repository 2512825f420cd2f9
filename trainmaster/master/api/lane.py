"""The fast lane of jobs: what every one of thousands says is taken in without a framework's ceremony.

It serves the same functions as the endpoints of `jobs`, only when all is as usual: a job's own token, a body that fits,
an answer without a fault. Everything else goes on to the application, which can say what is wrong; so these endpoints
must be such that a call can be made twice. What different jobs say while a transaction is under way shares the next
one: plain measurements, and the leases and ends of jobs that the scheduler starts together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.api import jobs
from trainmaster.master.api.connections import note_sender
from trainmaster.master.api.dependencies import Services, peer_of
from trainmaster.master.api.limits import OF_STRANGERS
from trainmaster.master.api.security_headers import USUAL
from trainmaster.master.services.access import identity
from trainmaster.master.services.access.identity import Caller

LONGEST = 1 << 20  # bytes of a body
THREADS = 8
GATES = 2  # one prepares while the database works for the other
TOGETHER = 64  # calls in one transaction
BURST = 5.0  # seconds' worth of bytes that may come at once
LONGEST_WAIT = 20.0  # seconds that an answer is held back: less than the runtime's retries
KNOWN_FOR = 60.0  # seconds for which a job's token is not asked about again
MOST_KNOWN = 10_000
_PATH = re.compile("/api/x1/allocations/([^/]+)/(lease|reports|exit)")
_SCHEME = b"bearer alloc:"
_HEADERS = ((b"content-type", b"application/json"), *USUAL)

Json = dict[str, Any]


class _Verb(NamedTuple):
    """A kind of call, how one is served, and how several of different attempts are, as far as they can be."""

    body: type[BaseModel]
    alone: Callable[[Services, str, Any], Json]
    together: Callable[[Services, Sequence[tuple[str, Any]]], Sequence[Json | None]]


_VERBS = {
    "lease": _Verb(jobs.Lease, jobs.give_lease, jobs.give_leases),
    "reports": _Verb(jobs.Reports, jobs.take_reports, jobs.take_measurements),
    "exit": _Verb(jobs.ExitRecord, jobs.take_exit, jobs.take_exits),
}


class Lane:
    """An ASGI application in front of `app`."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app, self._services = app, services
        self._pace = Pace(services.settings.limits.job_rate * 2**20)
        self._threads = ThreadPoolExecutor(THREADS, "lane")
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()
        self._gates = {verb: _Gate(self._take_in, self._alone, verb) for verb in _VERBS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not (path := _PATH.fullmatch(scope["path"])):
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        answer = await self._answer(path[1], path[2], scope, receive, read)
        if answer is None:
            await self._app(scope, _again(read, receive), send)
            return
        note_sender(scope, path[1])
        headers = [*_HEADERS, (b"content-length", b"%d" % len(answer))]
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
        call = _Call(allocation_id, verb, token, body, scope)
        self._gates[verb].add(call)
        answer = await call.answer
        if answer is not None and (wait := self._pace.owed(allocation_id, len(body))):
            await asyncio.sleep(wait)  # a job says nothing more until it has its answer
        return answer

    def _alone(self, call: _Call) -> None:
        self._threads.submit(self._serve, call)

    def _serve(self, call: _Call) -> None:
        answer = None
        try:
            self._know([call.token])
            answer = _written(_VERBS[call.verb].alone(self._services, call.allocation_id, self._read(call)))
        except Exception:  # noqa: S110 - the application meets it again, and says what it is
            pass
        _settle([(call, answer)])

    def _take_in(self, calls: Sequence[_Call]) -> None:
        """Calls of one kind and of different attempts."""
        try:
            self._know([call.token for call in calls])
        except Exception:  # the database is away: the application meets it again
            _settle([(call, None) for call in calls])
            return
        read: list[tuple[_Call, Any]] = []
        for call in calls:
            try:
                read.append((call, self._read(call)))
            except Exception:  # the application meets it again, and says what it is
                _settle([(call, None)])
        if not read:
            return
        answers: list[bytes | None] = [None] * len(read)
        # What goes wrong is one call's fault: each is tried by itself, and says it if it is its own.
        with contextlib.suppress(Exception):
            asked = [(call.allocation_id, body) for call, body in read]
            together = _VERBS[calls[0].verb].together(self._services, asked)
            answers = [None if answer is None else _written(answer) for answer in together]
        answered = list(zip((call for call, _ in read), answers, strict=True))
        _settle([(call, answer) for call, answer in answered if answer is not None])
        for call, answer in answered:
            if answer is None:
                self._alone(call)

    def _read(self, call: _Call) -> Any:
        known = self._known.get(call.token)
        if known is None or known[1].allocation_id != call.allocation_id:
            raise PermissionError(call.allocation_id)
        body = _VERBS[call.verb].body.model_validate_json(call.body)
        return body.from_peer(peer_of(HTTPConnection(call.scope))) if isinstance(body, jobs.Lease) else body

    def _know(self, tokens: Sequence[str]) -> None:
        """Several threads may ask for the same one; the last one's answer is kept."""
        at = time.monotonic()
        strange = [token for token in tokens if not (known := self._known.get(token)) or at - known[0] >= KNOWN_FOR]
        if not strange:
            return
        callers = identity.authenticate_jobs(self._services.store, self._services.settings, strange)
        for token in strange:
            if token in callers:
                self._known[token] = at, callers[token]
            else:
                self._known.pop(token, None)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


class Pace:
    """Holds back jobs that report more than `rate` bytes a second; a burst of BURST seconds is free."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._upto: OrderedDict[str, float] = OrderedDict()  # of each job: until when its bytes would have taken

    def owed(self, allocation_id: str, size: int) -> float:
        """Seconds that the job has to wait for its answer."""
        at = time.monotonic()
        upto = max(self._upto.pop(allocation_id, at), at) + size / self._rate
        self._upto[allocation_id] = upto
        if len(self._upto) > MOST_KNOWN:
            self._upto.popitem(last=False)
        return max(0.0, min(upto - at - BURST, LONGEST_WAIT))


class _Gate:
    """Calls of one kind: those that come while some are being taken in are taken in together after them."""

    def __init__(self, take_in: Callable[[Sequence[_Call]], None], alone: Callable[[_Call], None], name: str) -> None:
        self._take_in, self._alone = take_in, alone
        self._waiting: deque[_Call] = deque()
        self._arrived = threading.Semaphore(0)  # once for each of them
        for number in range(GATES):
            threading.Thread(target=self._gather, name=f"{name}-gate-{number}", daemon=True).start()

    def add(self, call: _Call) -> None:
        self._waiting.append(call)
        self._arrived.release()

    def _gather(self) -> None:
        while True:
            calls: dict[str, _Call] = {}
            self._arrived.acquire()
            while True:
                call = self._waiting.popleft()
                # Two of one allocation are not to be taken in together: the later may build on the earlier.
                other = calls.setdefault(call.allocation_id, call)
                if other is not call:
                    self._alone(call)
                if len(calls) >= TOGETHER or not self._arrived.acquire(blocking=False):
                    break
            self._take_in(list(calls.values()))


class _Call:
    """One request on its way; made in the event loop, whose future is settled from threads."""

    def __init__(self, allocation_id: str, verb: str, token: str, body: bytes, scope: Scope) -> None:
        self.allocation_id, self.verb, self.token, self.body = allocation_id, verb, token, body
        self.scope = scope
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
