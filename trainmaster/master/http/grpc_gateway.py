"""Rewrites requests to what grpc-gateway, Determined's front end, would read, before FastAPI sees them.

A query parameter is known by its name in the protocol (`user_ids`) and by its name in JSON (`userIds`), at each of its
levels; of a parameter that is no list, the first value counts. Where a message is expected, an empty body is an empty
message: clients send no body for requests in which nothing is set. A body is JSON whatever its Content-Type says: here
that holds for what `curl -d` sends, as long as no browser can have sent it with its user's cookie.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.master.http.dependencies import in_header

V1 = "/api/v1/"
PREFIXES = (V1, "/api/x1/")  # other endpoints have parameter names of their own
LISTS = frozenset(
    (
        *("agentIds", "allocationIds", "containerIds", "experimentIdFilter.incl", "experimentIdFilter.notIn", "ids"),
        *("labels", "levels", "metricIds", "metricNames", "rankIds", "resourcePools", "roleIdAssignedDirectlyToUser"),
        *("sources", "states", "stdtypes", "tokenIds", "trialIds", "userIds", "users", "without"),
        *(
            "workspaceIds",
            "workspaceNames",
            "timeSeriesFilter.integerRange.incl",
            "timeSeriesFilter.integerRange.notIn",
        ),
    )
)
WITH_BODIES = ("POST", "PUT", "PATCH", "DELETE")
_FORM = "application/x-www-form-urlencoded"
_OF_BROWSERS = ("cookie", "origin", "referer", "sec-fetch-site", "sec-fetch-mode")


class GrpcGateway:
    """The ASGI application before FastAPI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIXES):
            # In place: outer applications read what is left in the scope.
            scope["query_string"], scope["headers"] = in_json_names(scope["query_string"]), _as_json(scope)
            if scope["method"] in WITH_BODIES and scope["path"].startswith(V1):
                receive = _or_empty_message(receive)
        await self._app(scope, receive, send)


def _or_empty_message(receive: Receive) -> Receive:
    """`{}` in the place of a body without a byte."""
    first = True

    async def received() -> Message:
        nonlocal first
        message = await receive()
        if first and message["type"] == "http.request" and not message.get("body") and not message.get("more_body"):
            message = {**message, "body": b"{}"}
        first = False
        return message

    return received


def in_json_names(query: bytes) -> bytes:
    """Return the query with each parameter under its JSON name."""
    if not query:
        return query
    kept: list[tuple[str, str]] = []
    names = set()
    for key, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        name = json_name(key)
        if name in LISTS or name not in names:
            kept.append((name, value))
        names.add(name)
    return urlencode(kept).encode()


def json_name(name: str) -> str:
    """`experiment_id_filter.not_in` as `experimentIdFilter.notIn`; a JSON name as it is."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _as_json(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers without a program's Content-Type of a form: FastAPI then reads the body as JSON.

    Requests of browsers keep it. A foreign page can make one send forms, with its user's cookie or to log its user
    in as somebody else; such a request holds one of the headers that browsers add, and no token in a header."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    request = HTTPConnection(scope)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return headers
    if not in_header(request) and any(name in request.headers for name in _OF_BROWSERS):
        return headers
    return [(name, value) for name, value in headers if name != b"content-type"]
