"""Turns every error into Determined's JSON error envelope."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, DatabaseUnavailable, in_short
from trainmaster.master.http.messages import Error
from trainmaster.master.services import errors

log = logging.getLogger(__name__)

# gRPC's code and name for each HTTP status, with which grpc-gateway fills the envelope.
_BY_STATUS = {
    400: (3, "InvalidArgument"),
    401: (16, "Unauthenticated"),
    403: (7, "PermissionDenied"),
    404: (5, "NotFound"),
    405: (12, "Unimplemented"),
    408: (1, "Canceled"),
    409: (6, "AlreadyExists"),
    413: (8, "ResourceExhausted"),
    422: (3, "InvalidArgument"),
    426: (9, "FailedPrecondition"),
    429: (8, "ResourceExhausted"),
    500: (13, "Internal"),
    501: (12, "Unimplemented"),
    503: (14, "Unavailable"),
}
_STATUS = {
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.NotServed: 501,
    errors.Unavailable: 503,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.Busy: 429,
}

DATABASE_AWAY = "The database does not answer now; try again in a moment."
RESPONSES: dict[int | str, dict[str, Any]] = {"default": {"model": Error, "description": "Anything that went wrong"}}


def envelope(status: int, message: str, details: Any = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    code, reason = _BY_STATUS.get(status, (2, "Unknown"))
    error: dict[str, Any] = {"code": code, "reason": reason, "error": message}
    if details:
        error["details"] = details
    return JSONResponse({"error": error, "message": message}, status, headers)


def stream_error(error: Exception) -> bytes:
    """Return the last line of a stream that `error` ends: a ServiceError, or one of DATABASE_UNAVAILABLE. Its shape is
    that of grpc-gateway; clients read in `http_code` whether trying again helps."""
    status, message = explained(error)
    code, reason = _BY_STATUS.get(status, (2, "Unknown"))
    sentence = {"grpc_code": code, "http_code": status, "http_status": reason, "message": message}
    return json.dumps({"error": sentence}).encode() + b"\n"


def _status_of(error: errors.ServiceError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def explained(error: Exception) -> tuple[int, str]:
    """Status and sentence of an error before a router is called: a ServiceError, or one of AWAY."""
    if isinstance(error, errors.ServiceError):
        return _status_of(error), error.message
    return 503, DATABASE_AWAY


def note_refusal(connection: HTTPConnection, sentence: str) -> None:
    """Log each call that the caller may not make: it shows who probes for open endpoints."""
    address = connection.client.host if connection.client else "an unknown address"
    method = connection.scope.get("method", "GET")
    log.info("refused %s %s from %s: %s", method, quote(connection.scope["path"]), address, sentence)


class RefuseNul:
    """Refuses URLs with a NUL character: PostgreSQL's text cannot hold it, so nothing can have such a name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            await envelope(400, "The address contains a NUL character, which is not allowed.")(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class AnsweredErrors:
    """Ends errors whose response is complete, such as a bug that was answered with 500: they have been logged, and
    raised again they would make the server close a connection on which other requests may be under way."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        complete = False

        async def watched(message: Message) -> None:
            nonlocal complete
            await send(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, watched if scope["type"] == "http" else send)
        except Exception:  # any kind: only whether its response was complete decides, and it has been logged
            if not complete:
                raise


def install(app: FastAPI) -> None:
    @app.exception_handler(errors.ServiceError)
    async def service_error(request: Request, error: errors.ServiceError) -> JSONResponse:
        if isinstance(error, errors.Unauthenticated | errors.Forbidden):
            note_refusal(request, error.message)
        wait = error.retry_after if isinstance(error, errors.Unavailable) else None
        headers = {"Retry-After": str(math.ceil(wait))} if wait is not None else None
        return envelope(_status_of(error), error.message, list(error.details), headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        parts = [f"{'.'.join(str(p) for p in e['loc'][1:]) or e['loc'][0]}: {e['msg']}" for e in error.errors()]
        kind = request.headers.get("content-type", "")
        if any(e["loc"] == ("body",) for e in error.errors()) and "json" not in kind:
            # Not read as JSON, whatever it contains: a foreign page can make a browser send forms with its user's
            # cookie.
            what = f"Content-Type {kind!r}" if kind else "no Content-Type"
            return envelope(400, f"The request's body has {what}: send JSON, with Content-Type: application/json.")
        return envelope(400, f"The request does not fit: {'; '.join(parts)}.")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        nothing = f"not found: There is nothing at {request.url.path}."
        message = nothing if error.status_code == 404 else str(error.detail)
        return envelope(error.status_code, message, headers=error.headers)

    async def database_away(request: Request, error: Exception) -> JSONResponse:
        # A database that is known not to answer has been logged.
        level = logging.DEBUG if isinstance(error, DatabaseUnavailable) else logging.WARNING
        why = in_short(error)
        log.log(level, "%s %s could not be served without the database: %s", request.method, request.url.path, why)
        return envelope(503, DATABASE_AWAY)

    for kind in DATABASE_UNAVAILABLE:
        app.add_exception_handler(kind, database_away)

    @app.exception_handler(RecursionError)
    async def too_deep(request: Request, error: RecursionError) -> JSONResponse:
        return envelope(400, "The request's body is nested deeper than can be worked with: use fewer levels.")

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        log.error("a bug in %s %s", request.method, request.url.path, exc_info=error)
        return envelope(500, "The master failed to handle this request; see its log.")
