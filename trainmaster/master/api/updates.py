"""The WebSocket `/stream`: sends changes of projects, models and model versions as they happen.

The client sends what it subscribes to and what it knows. The master answers `{"sync_id", "complete": false}`, all that
the client lacks, `{"sync_id", "complete": true}`, and from then on each change, until the client subscribes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import ColumnElement
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect, WebSocketState

from trainmaster.master.api.service_access import TICKET
from trainmaster.master.db.model_registry import Model, ModelVersion
from trainmaster.master.db.tables import Project
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.master.http.dependencies import (
    ServedMaster,
    UserCaller,
    bearer,
    in_header,
    peer_of,
    same_page,
    user_of,
    user_of_session,
)
from trainmaster.master.http.error_envelope import envelope, explained, note_refusal
from trainmaster.master.http.messages import rfc3339
from trainmaster.master.http.waiting import Waiting, waiting
from trainmaster.master.services.access import tickets
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Forbidden, ServiceError, Unauthenticated
from trainmaster.master.services.events import updates
from trainmaster.master.services.events.updates import EntityKind, Follower, Subscription
from trainmaster.master.services.ranges import Ranges
from trainmaster.master.values.stored import Json

router = APIRouter(tags=["updates"])
log = logging.getLogger(__name__)
Ids = list[Annotated[int, Field(ge=0, lt=2**31)]]
PAUSE = 0.1  # debounce, in seconds: a burst of changes is read once
CHECK_PERIOD = 10.0  # seconds between two checks of a follower's rights and entities without a wake-up
LONGEST_REASON = 123  # bytes of text that fit into a frame which closes a WebSocket
GOING_AWAY, POLICY, TRY_AGAIN = 1001, 1008, 1013  # RFC 6455, and IANA's registry of its codes


class _Spec(BaseModel):
    """A subscription to entities of a kind, and the last change that the client knows. Unknown fields are ignored: a
    client may know more than we do."""

    since: Annotated[int, Field(ge=0)] | None = None


class ProjectSpec(_Spec):
    workspace_ids: Ids | None = None
    project_ids: Ids | None = None


class ModelSpec(_Spec):
    workspace_ids: Ids | None = None
    model_ids: Ids | None = None
    user_ids: Ids | None = None


class VersionSpec(_Spec):
    model_ids: Ids | None = None
    model_version_ids: Ids | None = None
    user_ids: Ids | None = None


class Subscribe(BaseModel):
    projects: ProjectSpec | None = None
    models: ModelSpec | None = None
    modelversions: VersionSpec | None = None


class Known(BaseModel):
    projects: str | None = None
    models: str | None = None
    modelversions: str | None = None


class Opening(BaseModel):
    """The follower's message."""

    sync_id: str
    known: Known | None = None
    subscribe: Subscribe | None = None


@router.get("/stream", include_in_schema=False)
def without_websocket(_: UserCaller) -> None:
    raise HTTPException(426, "Updates are sent over a WebSocket; connect with one.", {"Upgrade": "websocket"})


@router.websocket("/stream")
async def follow(socket: WebSocket) -> None:
    master: ServedMaster = socket.app.state.master
    try:
        caller = await master.threads.check(in_header(socket), peer_of(socket), _admit, master, socket)
    except (ServiceError, *DATABASE_UNAVAILABLE) as error:
        status, sentence = explained(error)
        note_refusal(socket, sentence)
        await socket.send_denial_response(envelope(status, sentence))
        return
    await socket.accept()
    session = _Session(socket, master, caller)
    try:
        code, reason = await session.run()
    except WebSocketDisconnect:
        return
    if socket.client_state is WebSocketState.CONNECTED and socket.application_state is WebSocketState.CONNECTED:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it may have disconnected by now
            await socket.close(code, reason.encode()[:LONGEST_REASON].decode(errors="ignore"))


def _admit(master: ServedMaster, socket: WebSocket) -> Caller:
    """Authenticate by a header, a ticket, or the cookie with a page of ours: a browser sends it with any page's
    WebSocket. Raises Unauthenticated, Forbidden."""
    if ticket := socket.query_params.get(TICKET):
        return user_of_session(master, master.tickets.redeem(ticket, tickets.STREAM))
    token = bearer(socket)
    if not token:
        raise Unauthenticated("Log in first: `det user login`.")
    caller = user_of(master, token)
    if caller.session_id is None:
        raise Forbidden("Updates are sent to sessions of users, not to programs that act as a user in a job.")
    if not in_header(socket) and not same_page(socket, master, caller):
        origin = socket.headers.get("origin")
        raise Forbidden(f"A page of {origin} may not follow this master with its visitor's cookie.")
    return caller


class _Session:
    """One connection: its subscriptions, and what it has been sent."""

    def __init__(self, socket: WebSocket, master: ServedMaster, caller: Caller) -> None:
        assert caller.session_id is not None  # a user's
        self._socket, self._master = socket, master
        self._caller, self._session_id, self._name = caller, caller.session_id, caller.username
        self._asked: asyncio.Queue[Opening] = asyncio.Queue(1)  # a client that sends faster than we answer waits
        self._followers: list[tuple[_Words, Follower]] = []
        self._over: tuple[int, str] | None = None

    async def run(self) -> tuple[int, str]:
        """Serve until the follower disconnects, may no longer follow, or the master stops; return the close code and
        reason."""
        wakeups = self._master.wakeups
        with waiting(wakeups, updates.SUBJECT, period=CHECK_PERIOD) as turn:
            hearing = asyncio.create_task(self._hear(turn))
            try:
                while self._over is None:
                    turn.begin()
                    if wakeups.closed:
                        return GOING_AWAY, "The master stops."
                    await self._turn()
                    if self._asked.empty():
                        await turn.again()
                    if self._asked.empty() and self._over is None:
                        await asyncio.sleep(PAUSE)
                return self._over
            except ServiceError as error:
                log.info("no more updates for %s: %s", self._name, error.message)
                return POLICY, error.message
            except DATABASE_UNAVAILABLE:
                return TRY_AGAIN, "The database does not answer now."
            finally:
                hearing.cancel()

    async def _turn(self) -> None:
        """Answer a message, or send what has changed."""
        opening = None if self._asked.empty() else self._asked.get_nowait()
        if opening is None and not self._followers:
            return
        threads = self._master.threads
        caller = await threads.run(self._caller, user_of_session, self._master, self._session_id)
        await threads.run(caller, self._master.update_numbers.give_numbers)
        if opening is None:
            await self._send_changes(caller)
            return
        self._followers = await threads.run(caller, _followers, self._master, opening)
        await self._say({"sync_id": opening.sync_id, "complete": False})
        await self._send_changes(caller)
        await self._say({"sync_id": opening.sync_id, "complete": True})

    async def _send_changes(self, caller: Caller) -> None:
        threads = self._master.threads
        for words, follower in self._followers:
            gone = await threads.run(caller, follower.look, caller)
            if gone:
                await self._say({words.deleted: str(gone)})
            batches = follower.changed(caller)
            while (some := await threads.run(caller, next, batches, None)) is not None:
                for change in some:
                    entry = words.write(change.row, change.workspace_id)
                    await self._say({words.upserted: {**entry, "seq": change.seq}})

    async def _say(self, message: Json) -> None:
        await self._socket.send_text(json.dumps(message, separators=(",", ":")))

    async def _hear(self, turn: Waiting) -> None:
        try:
            while True:
                text = await self._socket.receive_text()
                await self._asked.put(Opening.model_validate_json(text))
                turn.wake()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            self._over = POLICY, f"The subscription is not valid: {where}: {first['msg']}"
        except KeyError:
            self._over = POLICY, "Send text messages, not binary ones."
        except WebSocketDisconnect:
            self._over = GOING_AWAY, ""
        turn.wake()


# -- the wire -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Words:
    """The names of a kind of entity in messages, and how it is serialized."""

    kind: EntityKind
    upserted: str
    deleted: str
    columns: Mapping[str, ColumnElement[Any]]  # by the name that a spec has for ids of each
    write: Callable[[Any, int], Json]  # the row, and in which workspace it stands


def _project(row: Project, workspace_id: int) -> Json:
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "archived": row.archived,
        "created_at": rfc3339(row.created_at),
        "notes": row.notes,
        "workspace_id": workspace_id,
        "user_id": row.user_id,
        "immutable": row.immutable,
        "state": row.state or "UNSPECIFIED",
        "key": row.key,
    }


def _model(row: Model, workspace_id: int) -> Json:
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "archived": row.archived,
        "creation_time": rfc3339(row.created_at),
        "notes": row.notes,
        "workspace_id": workspace_id,
        "user_id": row.user_id,
        "last_updated_time": rfc3339(row.updated_at),
        "metadata": row.model_metadata,
        "labels": row.labels,
    }


def _version(row: ModelVersion, workspace_id: int) -> Json:
    return {
        "id": row.id,
        "name": row.name,
        "version": row.version,
        "checkpoint_uuid": str(row.checkpoint),
        "creation_time": rfc3339(row.created_at),
        "last_updated_time": rfc3339(row.updated_at),
        "metadata": row.version_metadata,
        "model_id": row.model_id,
        "user_id": row.user_id,
        "comment": row.comment,
        "labels": row.labels,
        "notes": row.notes,
        "workspace_id": str(workspace_id),  # a string here alone, as in Determined
    }


_P, _M, _V = Project.__table__.c, Model.__table__.c, ModelVersion.__table__.c
WORDS: Mapping[str, _Words] = {
    "projects": _Words(
        updates.PROJECTS,
        "project",
        "projects_deleted",
        {"workspace_ids": _P.workspace_id, "project_ids": _P.id},
        _project,
    ),
    "models": _Words(
        updates.MODELS,
        "model",
        "models_deleted",
        {"workspace_ids": _M.workspace_id, "model_ids": _M.id, "user_ids": _M.user_id},
        _model,
    ),
    "modelversions": _Words(
        updates.VERSIONS,
        "modelversion",
        "modelversions_deleted",
        {"model_ids": _V.model_id, "model_version_ids": _V.id, "user_ids": _V.user_id},
        _version,
    ),
}


def _followers(master: ServedMaster, opening: Opening) -> list[tuple[_Words, Follower]]:
    """Raise Invalid for ids that are not written as such."""
    last = master.update_numbers.last_number()
    followers: list[tuple[_Words, Follower]] = []
    for name, words in WORDS.items():
        spec: _Spec | None = getattr(opening.subscribe, name, None)
        if spec is None:
            continue
        wanted = Subscription({column: getattr(spec, ids, None) or () for ids, column in words.columns.items()})
        known = Ranges.parse(getattr(opening.known, name, None) or "")
        # A number that was never assigned comes from before the database was restored from a backup.
        since = spec.since if spec.since is not None and spec.since <= last else 0
        followers.append((words, Follower(master.store, words.kind, wanted, known, since)))
    return followers
