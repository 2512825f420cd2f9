"""The WebSocket `/api/x1/live`: notifies pages of changes.

A page subscribes to topics. The master sends a hint when a topic may have changed, and the page refetches through the
normal endpoints, so authorisation, limits and ETags are not duplicated. A new subscription gets a hint at once, after
the master has begun to listen: nothing is missed between a page's first read and its subscription, nor while a
connection is broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect, WebSocketState

from trainmaster.master.admission.connections import LIVE, LONGEST_MESSAGE
from trainmaster.master.admission.read_turns import ReadTurn, ReadTurns
from trainmaster.master.admission.unauthenticated import UnauthenticatedConnections
from trainmaster.master.db import changes
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http.dependencies import (
    OPENED,
    ServedMaster,
    UserCaller,
    in_header,
    peer_of,
    session_cookie,
    user_of,
    user_of_session,
)
from trainmaster.master.http.error_envelope import envelope, note_refusal
from trainmaster.master.http.permissions import ENDPOINTS
from trainmaster.master.http.session_guard import ConnectionHolder, SessionGuard
from trainmaster.master.services import live_changes
from trainmaster.master.services.access import locations, tickets
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.errors import AccessDenied, Invalid, NotFound, ServiceError

router = APIRouter(tags=["live"])
log = logging.getLogger(__name__)

MOST_TOPICS = 20
LONGEST_TOPIC = 200  # characters
MOST_MESSAGES = 30  # from a page in PERIOD seconds
PERIOD = 10.0
TICKET_COMES = 10.0  # seconds until the first message
ALIVE = 20.0  # seconds without a hint after which an empty message says that the connection lasts
CHECK_RIGHTS = 60.0  # seconds between two checks without a change of roles
# Seconds between two hints of a topic, by its kind. Home and the list change with everything that runs.
USUAL_PAUSE = 0.5
PAUSES: Mapping[str, float] = {"log": 0.25, "mine": 2.0, "list": 2.0}
# Seconds after which there is a hint without a change. Home shows the pools too, which others fill.
LOOK_AGAIN = 300.0
LOOKS_AGAIN: Mapping[str, float] = {"mine": 60.0}
GOING_AWAY, POLICY, TOO_BIG, TRY_AGAIN = 1001, 1008, 1009, 1013  # RFC 6455, and IANA's registry of its codes
LONGEST_REASON = 123  # bytes of text that fit into a frame which closes a WebSocket

# What a page reads of each kind of topic: who may read it may follow it.
_READ: Mapping[str, tuple[str, str]] = {
    "experiment": ("experiment_id", "GET /api/x1/experiments/{experiment_id}/board"),
    "trial": ("trial_id", "GET /api/x1/trials/{trial_id}/board"),
    "log": ("task_id", "GET /api/v1/tasks/{task_id}/logs"),
}
_LIST = "GET /api/x1/experiments/table"
_KINDS = "mine, list, experiment:ID, trial:ID and log:TASK"


class Message(BaseModel):
    """From a page; the first one carries the ticket. `follow` replaces what was followed before."""

    model_config = ConfigDict(extra="forbid")
    follow: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_TOPIC)]], Field(max_length=MOST_TOPICS)
    ] = []
    ticket: Annotated[str, Field(max_length=100)] = ""


def subject_of(topic: str, caller: Caller) -> str:
    """Return the subject whose wake-ups are news of a topic. Raises Invalid."""
    kind, _, key = topic.partition(":")
    if topic == "mine":
        return live_changes.of_user(caller.user_id)
    if topic == "list":
        return live_changes.EXPERIMENTS
    if kind in _READ and key and key.isprintable() and " " not in key:
        return f"task:{key}" if kind == "log" else topic
    raise Invalid(f"There is no topic {topic!r:.80}; there are {_KINDS}.")


def check(master: ServedMaster, caller: Caller, topic: str) -> None:
    """Raise Forbidden, NotFound, Invalid where the caller may not read what the topic is about."""
    kind, _, key = topic.partition(":")
    if topic == "mine":
        return
    name, endpoint = _READ.get(kind, ("", _LIST))
    rule = ENDPOINTS[endpoint]
    assert isinstance(rule, Permission)
    home = master.locations.workspace_of({name: key}) if name else None
    if not master.settings.roles:
        return
    if not caller.holds_somewhere(rule):
        raise AccessDenied(f"This needs the permission {rule.name}, which none of your roles gives.")
    where = caller.where(rule)
    if home is not None and where is not None and home not in where:
        if not caller.sees_anything(home):
            raise NotFound(locations.absent({name: key}))
        raise AccessDenied(f"Your roles do not allow this in workspace {home}.")


class Pages:
    """All live connections of this process. Belongs to the event loop."""

    def __init__(self, master: ServedMaster, guard: SessionGuard) -> None:
        self.master, self.guard = master, guard
        self.unauthenticated = UnauthenticatedConnections()
        self._users: Counter[int] = Counter()
        self.turns = ReadTurns()

    @contextmanager
    def known(self, user_id: int) -> Iterator[str]:
        """Count a user's connection in the block; yields why it is refused, or nothing."""
        most = self.master.settings.limits.live_connections
        self._users[user_id] += 1
        over = self._users[user_id] > most
        try:
            yield f"You have {most} live connections (limits.live_connections); close some pages." if over else ""
        finally:
            self._users -= Counter((user_id,))


@router.get(LIVE, include_in_schema=False)
def without_websocket(_: UserCaller) -> None:
    raise HTTPException(426, "What changes is told over a WebSocket; connect with one.", {"Upgrade": "websocket"})


@router.websocket(LIVE)
async def live(socket: WebSocket) -> None:
    pages: Pages = socket.app.state.pages
    with contextlib.ExitStack() as until_known:
        must_leave = asyncio.Event()
        if (user_id := await _signed_in(pages.master, socket)) is None:
            must_leave = until_known.enter_context(pages.unauthenticated.entered(peer_of(socket)))
        elif why := until_known.enter_context(pages.known(user_id)):
            note_refusal(socket, why)
            await socket.send_denial_response(envelope(503, why))
            return
        await socket.accept()
        page = _Page(socket, pages)
        try:
            code, reason = await page.run(until_known, must_leave)
        except WebSocketDisconnect:
            return
    if socket.client_state is WebSocketState.CONNECTED and socket.application_state is WebSocketState.CONNECTED:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it may have disconnected by now
            await socket.close(code, reason.encode()[:LONGEST_REASON].decode(errors="ignore"))


async def _signed_in(master: ServedMaster, socket: WebSocket) -> int | None:
    """Return the user whose session the request shows, as browsers' requests do: no stranger, though only a ticket
    admits."""
    try:
        shown = in_header(socket) or session_cookie(socket)
        if not shown:
            return None
        caller = await master.threads.check(shown, peer_of(socket), user_of, master, shown)
    except (ServiceError, *DATABASE_UNAVAILABLE):
        return None
    master.threads.remember(shown, caller)
    return caller.user_id


class _Closed(Exception):
    """The connection is to be closed, with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class _Raised:
    """A flag of one connection, which wakes its coroutine when it is set."""

    def __init__(self, awake: asyncio.Event) -> None:
        self._awake = awake
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._awake.set()

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False


class _Topic(_Raised):
    """A topic that a page follows. It is set when there may be news, as there are at the beginning."""

    def __init__(self, name: str, subject: str, awake: asyncio.Event, pages: Pages, user_id: int) -> None:
        super().__init__(awake)
        self._turns, self._user_id = pages.turns, user_id
        self.name, self.seq = name, 0
        kind = name.partition(":")[0]
        self._pause, self._look_again = PAUSES.get(kind, USUAL_PAUSE), LOOKS_AGAIN.get(kind, LOOK_AGAIN)
        self._earliest = 0.0  # of the next hint, by its own pause
        self._turn: ReadTurn | None = None  # of the next hint, among all pages
        self._listening = contextlib.ExitStack()
        self._listening.enter_context(pages.master.wakeups.waking(subject, self))
        self.set()

    def due(self) -> float:
        """When the next hint is to be sent, if that is known."""
        if not self.is_set():
            return self._earliest - self._pause + self._look_again
        if self._turn is None:
            self._turn = self._turns.ask(self._user_id, self._awake.set)
        return self._earliest if self._turn.is_given else math.inf

    def hint(self, at: float) -> dict[str, Any]:
        """Return the next hint; what changes from now on is in another one."""
        self.clear()
        self.seq += 1
        self._earliest, self._turn = at + self._pause, None
        return {"topic": self.name, "seq": self.seq}

    def leave(self) -> None:
        """End the following; what is no longer followed holds no turn."""
        self._listening.close()
        if self._turn is not None:
            self._turns.withdraw(self._turn)
            self._turn = None


class _Page:
    """One connection."""

    def __init__(self, socket: WebSocket, pages: Pages) -> None:
        self._socket, self._pages, self._master = socket, pages, pages.master
        self._awake = asyncio.Event()
        self._session_over, self._rights = _Raised(self._awake), _Raised(self._awake)
        self._topics: dict[str, _Topic] = {}
        self._wanted: Sequence[str] | None = None  # what the page's last message asks for
        self._messages: list[float] = []  # when the last ones came
        self._over: _Closed | None = None

    async def run(self, until_known: contextlib.ExitStack, must_leave: asyncio.Event) -> tuple[int, str]:
        """Serve until the page disconnects, its session ends, or the master stops; return the close code and
        reason."""
        try:
            caller = await self._enter(must_leave)
            until_known.close()
            assert caller.session_id is not None  # tickets are of sessions
            with (
                self._pages.known(caller.user_id) as excess,
                self._pages.guard.setting(ConnectionHolder(caller.user_id, caller.session_id), self._session_over),
                self._master.wakeups.waking(changes.SUBJECT, self._rights),
            ):
                if excess:
                    raise _Closed(TRY_AGAIN, excess)
                self._master.shares.charge(caller.user_id, OPENED)
                await self._serve(caller)
        except _Closed as closed:
            return closed.code, closed.reason
        except ServiceError as error:
            return POLICY, error.message
        except DATABASE_UNAVAILABLE:
            return TRY_AGAIN, "The database does not answer now."
        return GOING_AWAY, "The master stops."

    async def _enter(self, must_leave: asyncio.Event) -> Caller:
        """Return the user whose ticket is in the first message. Raises Unauthenticated, _Closed."""
        hearing, leaving = asyncio.create_task(self._next()), asyncio.create_task(must_leave.wait())
        try:
            await asyncio.wait((hearing, leaving), timeout=TICKET_COMES, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                if must_leave.is_set():
                    raise _Closed(TRY_AGAIN, "Too many live connections wait for their first message: try again.")
                raise _Closed(POLICY, f"No message came within {TICKET_COMES:.0f} s; send a ticket first.")
            message = hearing.result()
        finally:
            hearing.cancel()
            leaving.cancel()

        def admit() -> Caller:
            session = self._master.tickets.redeem(message.ticket, tickets.LIVE)
            return user_of_session(self._master, session)

        self._wanted = message.follow
        return await self._master.threads.check("", peer_of(self._socket), admit)

    async def _serve(self, caller: Caller) -> None:
        """Until the master stops. Raises _Closed, Unauthenticated, one of DATABASE_UNAVAILABLE."""
        hearing = asyncio.create_task(self._hear())
        check_at = time.monotonic() + CHECK_RIGHTS * random.uniform(0.5, 1)  # noqa: S311 - not all pages at once
        quiet_since = time.monotonic()
        try:
            while not self._master.wakeups.closed:
                self._awake.clear()
                if self._over is not None:
                    raise self._over
                if self._session_over.is_set():
                    raise _Closed(POLICY, "Your session has ended: log in again.")
                self._master.store.check()  # no hint comes without it: the page must know
                if self._rights.is_set() or time.monotonic() >= check_at:
                    self._rights.clear()
                    check_at = time.monotonic() + CHECK_RIGHTS
                    caller = await self._look_at_rights(caller)
                if self._wanted is not None:
                    wanted, self._wanted = self._wanted, None
                    # A grant's wake-up may come after the message of a page that was opened because of it.
                    caller = await self._with_roles(caller)
                    await self._follow(caller, wanted)
                if await self._send_hints():
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since >= ALIVE:
                    await self._say({})
                    quiet_since = time.monotonic()
                await self._sleep(min(check_at, quiet_since + ALIVE))
        finally:
            hearing.cancel()
            for topic in self._topics.values():
                topic.leave()

    async def _sleep(self, until: float) -> None:
        until = min([until, *(topic.due() for topic in self._topics.values())])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(until - time.monotonic(), 0)):
                await self._awake.wait()

    async def _send_hints(self) -> bool:
        sent = False
        for topic in self._topics.values():
            at = time.monotonic()
            if topic.due() <= at:
                await self._say(topic.hint(at))
                sent = True
        return sent

    async def _follow(self, caller: Caller, names: Sequence[str]) -> None:
        """Follow these topics and no others. One that may not be followed is answered with the reason."""
        for name in self._topics.keys() - names:
            self._topics.pop(name).leave()
        for name in dict.fromkeys(names):
            if name in self._topics:
                continue
            try:
                subject = subject_of(name, caller)
                await self._master.threads.run(caller, check, self._master, caller, name)
            except ServiceError as error:
                await self._say({"topic": name, "error": error.message})
                continue
            self._topics[name] = _Topic(name, subject, self._awake, self._pages, caller.user_id)

    async def _look_at_rights(self, caller: Caller) -> Caller:
        """End topics that the user may no longer follow."""
        if not self._master.settings.roles:
            return caller
        caller = await self._with_roles(caller)
        for name in list(self._topics):
            try:
                await self._master.threads.run(caller, check, self._master, caller, name)
            except ServiceError as error:
                self._topics.pop(name).leave()
                await self._say({"topic": name, "error": error.message})
        return caller

    async def _with_roles(self, caller: Caller) -> Caller:
        """Return the same user with the roles of now. Raises Unauthenticated when the session has ended."""
        if not self._master.settings.roles:
            return caller
        assert caller.session_id is not None
        return await self._master.threads.run(caller, user_of_session, self._master, caller.session_id)

    async def _say(self, message: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(message, separators=(",", ":")))

    async def _hear(self) -> None:
        try:
            while True:
                message = await self._next()
                if message.ticket:
                    raise _Closed(POLICY, "The ticket belongs into the first message, and nowhere else.")
                self._wanted = message.follow
                self._awake.set()
        except _Closed as closed:
            self._over = closed
        except WebSocketDisconnect:
            self._over = _Closed(GOING_AWAY, "")
        self._awake.set()

    async def _next(self) -> Message:
        """Return the next message. Raises _Closed for one that is not valid, and for too many."""
        try:
            text = await self._socket.receive_text()
        except KeyError:
            raise _Closed(POLICY, "Send text messages, not binary ones.") from None
        if len(text) > LONGEST_MESSAGE:
            raise _Closed(TOO_BIG, f"A message may have {LONGEST_MESSAGE} bytes.")
        at = time.monotonic()
        self._messages = [message for message in self._messages if at - message < PERIOD] + [at]
        if len(self._messages) > MOST_MESSAGES:
            raise _Closed(POLICY, f"Send at most {MOST_MESSAGES} messages in {PERIOD:.0f} s.")
        try:
            return Message.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise _Closed(POLICY, f"The message is not valid: {where}: {first['msg']}") from None
