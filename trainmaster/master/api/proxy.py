"""Reverse proxy at `/proxy/<task>/...`: HTTP and WebSockets from users to the services in their jobs.

Credentials stay here: a job never sees a user's token or cookie, and cannot set a cookie that the master accepts as
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState
from websockets.typing import Subprotocol

from trainmaster.master.api.service_access import (
    ServiceAccess,
    admit,
    asked_for,
    lead_in,
    query_of,
    ticket_of,
    with_pass,
)
from trainmaster.master.http import cookies
from trainmaster.master.http.dependencies import ServedMaster, UsesMaster, in_header, peer_of
from trainmaster.master.http.error_envelope import envelope
from trainmaster.master.http.origins import SERVICES
from trainmaster.master.http.redirects import redirect
from trainmaster.master.http.security_headers import PASSED_ON
from trainmaster.master.http.session_guard import SCOPE_KEY, SessionGuard
from trainmaster.master.services.errors import NotFound, ServiceError, Unauthenticated
from trainmaster.master.services.tasks.proxies import JobService

if TYPE_CHECKING:
    import httpx

router = APIRouter(tags=["proxy"])

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
SANDBOX = b"sandbox allow-scripts allow-forms allow-popups allow-downloads"
REACH_WITHIN = 10.0  # seconds for a connection to a job
PIECE = 64 * 1024  # bytes
LARGEST_MESSAGE = 128 * 2**20  # bytes
NORMAL, POLICY = 1000, 1008  # RFC 6455, 7.4.1
ENDED = "The session has ended."
_UNSENDABLE = (1005, 1006, 1015)

# RFC 9110, 7.6.1: between two neighbours only.
_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_CREDENTIALS = frozenset(("x-user-token", "grpc-metadata-x-allocation-token"))
_OF_WEBSOCKET = frozenset(
    (
        *("host", "origin", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"),
        *("sec-websocket-protocol", "content-length"),
    )
)
# Headers by which a page would set rules for the master's whole origin, which it shares.
_OF_SITE = frozenset(("clear-site-data", "service-worker-allowed", "strict-transport-security"))


# -- headers --------------------------------------------------------------------------------------------------------


def _onward(connection: HTTPConnection, service: JobService, name: str) -> list[tuple[str, str]]:
    """Return the caller's headers, as they are sent to the job."""
    token = in_header(connection)
    dropped = _HOP | _CREDENTIALS | _named(connection.headers.get("connection", ""))
    kept = []
    for key, value in connection.headers.items():
        if key in dropped or key == "cookie" or key.startswith("x-forwarded-"):
            continue
        if key == "authorization" and (service.secret or (token and token in value) or _is_password(value)):
            continue
        kept.append((key, value))
    if cookie := cookies.for_services(connection):
        kept.append(("cookie", cookie))
    if service.secret:
        kept.append(("authorization", f"token {service.secret}"))
    kept.append(("x-forwarded-for", connection.client.host if connection.client else ""))
    kept.append(("x-forwarded-host", connection.headers.get("host", "")))
    kept.append(("x-forwarded-proto", "https" if connection.url.scheme in ("https", "wss") else "http"))
    kept.append(("x-forwarded-prefix", f"/proxy/{name}"))
    return kept


def _is_password(value: str) -> bool:
    """Whether a header holds a password, which a browser that was ever asked for one here sends with every request. No
    job gets one."""
    return not value.strip().lower().startswith("bearer ") and not value.strip().lower().startswith("token ")


def _back(headers: Iterable[tuple[bytes, bytes]], name: str) -> list[tuple[bytes, bytes]]:
    """Return a service's headers, as they are sent to the caller. No browser asks for a password on a job's behalf, and
    cookies stay with the service."""
    pairs = [(key.lower(), value) for key, value in headers]
    listed = _named(b",".join(value for key, value in pairs if key == b"connection").decode("latin-1"))
    dropped = _HOP | _OF_SITE | listed
    kept = []
    for key, value in pairs:
        if key.decode("latin-1") in dropped:
            continue
        if key == b"www-authenticate" and not value.strip().lower().startswith(b"bearer"):
            continue
        if key == b"set-cookie":
            cookie = cookies.of_service(value.decode("latin-1"), f"/proxy/{name}/")
            if cookie is None:
                continue
            value = cookie.encode("latin-1")
        kept.append((key, value))
    return kept


def _rules(master: ServedMaster, request: Request, access: ServiceAccess) -> list[tuple[bytes, bytes]]:
    """Security headers of a service's response, beside its own: on the master's origin it may be shown, but do nothing
    in its visitor's name, unless it is the visitor's own."""
    if SERVICES in request.scope or access.by_owner:
        return [(b"cross-origin-resource-policy", b"same-origin")]
    return [(b"content-security-policy", SANDBOX)]


def _named(connection: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in connection.split(",") if word.strip())


def _target(connection: HTTPConnection, service: JobService, name: str) -> str:
    """Return the path and query to request from the job, as they were sent."""
    raw = connection.scope.get("raw_path") or connection.scope["path"].encode()
    path: str = raw.decode("latin-1")
    if not service.prefixed:
        path = path[len("/proxy/") + path[len("/proxy/") :].index("/") :]
    query = query_of(connection)
    return f"{path}?{query}" if query else path


def _host(service: JobService) -> str:
    return f"[{service.address}]" if ":" in service.address else service.address


# -- HTTP -----------------------------------------------------------------------------------------------------------


@router.api_route("/proxy/{service_id}", methods=METHODS, include_in_schema=False)
async def without_slash(service_id: str, request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return redirect(f"/proxy/{quote(service_id, safe=':')}/{query}", 308)


async def _admitted(master: ServedMaster, connection: HTTPConnection, service_id: str) -> ServiceAccess:
    """Raise Unauthenticated, Forbidden, NotFound."""
    shown = in_header(connection) or "; ".join(cookies.shown(connection, cookies.PASS))
    access = await master.threads.check(shown, peer_of(connection), admit, master, connection, service_id)
    if access.caller is not None:
        master.threads.remember(shown, access.caller)
    return access


async def _used(master: ServedMaster, service: JobService) -> None:
    await master.threads.run_as(("service", service.owner_id), master.idle_tasks.used, service.task_id)


@router.api_route("/proxy/{service_id}/{path:path}", methods=METHODS, include_in_schema=False)
async def http(service_id: str, path: str, request: Request, master: UsesMaster) -> Response:
    try:
        access = await _admitted(master, request, service_id)
    except Unauthenticated as error:
        return await master.threads.check("", peer_of(request), lead_in, master, request, service_id, error)
    if access.caller is not None and ticket_of(request) and request.method == "GET":
        return with_pass(master, request, service_id, access.caller, asked_for(request))
    service = access.service
    request.scope[SCOPE_KEY] = access.holder
    if service.tcp:
        return envelope(426, "This service sends raw bytes: use a WebSocket.", headers={"Upgrade": "websocket"})
    await _used(master, service)
    asked = _request(request, service, service_id)
    import httpx  # imported here: it takes a tenth of a second that only this needs

    try:
        answer = await _transport(request).handle_async_request(asked)
    except httpx.TransportError as error:
        why = str(error) or type(error).__name__
        return envelope(502, f"The service in the task {service.task_id} does not answer: {why}.")
    streamed = StreamingResponse(_pieces(answer), answer.status_code)
    request.scope[PASSED_ON] = True
    streamed.raw_headers = [*_back(answer.headers.raw, service_id), *_rules(master, request, access)]
    return streamed


def _request(request: Request, service: JobService, name: str) -> httpx.Request:
    import httpx

    target = _target(request, service, name).encode("latin-1")
    url = httpx.URL(scheme="http", host=service.address, port=service.port, raw_path=target)
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    body = request.stream() if has_body else None
    timeouts = {"timeout": {"connect": REACH_WITHIN}}
    headers = _onward(request, service, name)
    return httpx.Request(request.method, url, headers=headers, content=body, extensions=timeouts)


def _transport(request: Request) -> httpx.AsyncHTTPTransport:
    """One transport for the application. Connections are not kept: their target is checked before each. No client
    around it, which would keep cookies."""
    import httpx

    state = request.app.state
    if not hasattr(state, "proxy_transport"):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        state.proxy_transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
    transport: httpx.AsyncHTTPTransport = state.proxy_transport
    return transport


async def close(app: FastAPI) -> None:
    """Close the connections to jobs."""
    if hasattr(app.state, "proxy_transport"):
        await app.state.proxy_transport.aclose()


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the body as it was sent, compressed or not."""
    try:
        async for piece in cast(AsyncIterable[bytes], answer.stream):
            yield piece
    finally:
        await answer.aclose()


# -- WebSockets -------------------------------------------------------------------------------------------------------


@router.websocket("/proxy/{service_id}/{path:path}")
async def websocket(socket: WebSocket, service_id: str, path: str) -> None:
    master: ServedMaster = socket.app.state.master
    try:
        access = await _admitted(master, socket, service_id)
    except ServiceError as error:
        status = 401 if isinstance(error, Unauthenticated) else 404 if isinstance(error, NotFound) else 403
        await socket.send_denial_response(envelope(status, error.message))
        return

    service = access.service

    async def used() -> None:
        await _used(master, service)

    await used()
    guard: SessionGuard = socket.app.state.guard
    with guard.watching(access.holder) as ended:
        if service.tcp:
            await _bytes_through(socket, service, used, ended)
        else:
            await _messages_through(socket, service, service_id, used, ended)


Noting = Callable[[], Awaitable[None]]


async def _bytes_through(socket: WebSocket, service: JobService, used: Noting, ended: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(REACH_WITHIN):
            reader, writer = await asyncio.open_connection(service.address, service.port)
    except OSError as error:  # a time-out is one, too
        await _unreachable(socket, service, error)
        return

    async def up() -> None:
        async for data in _from(socket):
            writer.write(data.encode() if isinstance(data, str) else data)
            await writer.drain()
            await used()

    async def down() -> None:
        while data := await reader.read(PIECE):
            await socket.send_bytes(data)

    await socket.accept()
    try:
        await _until_one_ends(up(), down(), _until(ended))
    finally:
        writer.close()
    await _close(socket, *((POLICY, ENDED) if ended.is_set() else (NORMAL, "")))


async def _messages_through(
    socket: WebSocket, service: JobService, name: str, used: Noting, ended: asyncio.Event
) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidHandshake, InvalidStatus

    headers = [(key, value) for key, value in _onward(socket, service, name) if key not in _OF_WEBSOCKET]
    offered = [Subprotocol(word) for word in socket.scope.get("subprotocols") or ()]
    uri = f"ws://{_host(service)}:{service.port}{_target(socket, service, name)}"
    try:
        job = await connect(
            uri,
            additional_headers=headers,
            subprotocols=offered or None,
            compression=None,
            max_size=LARGEST_MESSAGE,
            open_timeout=REACH_WITHIN,
            ping_interval=None,  # both ends have their own idea of it
            proxy=None,
            user_agent_header=None,
        )
    except InvalidStatus as error:
        why = f"The service in the task {service.task_id} accepts no WebSocket here."
        await socket.send_denial_response(envelope(error.response.status_code, why))
        return
    except (OSError, InvalidHandshake) as error:
        await _unreachable(socket, service, error)
        return

    async def up() -> None:
        async for data in _from(socket):
            await job.send(data)
            await used()

    async def down() -> None:
        async for data in job:
            await (socket.send_text(data) if isinstance(data, str) else socket.send_bytes(data))

    await socket.accept(job.subprotocol)
    try:
        await _until_one_ends(up(), down(), _until(ended))
    finally:
        await job.close()
    if ended.is_set():
        await _close(socket, POLICY, ENDED)
    else:
        await _close(socket, job.close_code or NORMAL, job.close_reason or "")


async def _until(ended: asyncio.Event) -> None:
    await ended.wait()


async def _from(socket: WebSocket) -> AsyncIterator[str | bytes]:
    """Yield the caller's messages, until it disconnects."""
    while (message := await socket.receive())["type"] == "websocket.receive":
        data = message.get("bytes")
        yield data if data is not None else message["text"]


async def _until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Forward in both directions; when one ends, the other ends too. A broken connection is an end like any other."""
    from websockets.exceptions import ConnectionClosed

    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            fine = (asyncio.CancelledError, OSError, ConnectionClosed, WebSocketDisconnect, RuntimeError)
            if isinstance(ended, BaseException) and not isinstance(ended, fine):
                raise ended


async def _unreachable(socket: WebSocket, service: JobService, error: Exception) -> None:
    why = str(error) or type(error).__name__
    await socket.send_denial_response(
        envelope(502, f"The service in the task {service.task_id} cannot be reached: {why}.")
    )


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    if socket.client_state is WebSocketState.CONNECTED and socket.application_state is WebSocketState.CONNECTED:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it may have disconnected by now
            await socket.close(code if code not in _UNSENDABLE else NORMAL, reason)
