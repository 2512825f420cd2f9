"""Finds out, before any application runs, where a request comes from when reverse proxies stand in front, and which of
the master's two origins it is for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.config.networks import Origin
from trainmaster.master.http.error_envelope import envelope
from trainmaster.master.services import addresses
from trainmaster.master.services.addresses import Network

_NODE = re.compile(rb"/node/[^/]+/\d{1,5}(?=/)")
SERVICES = "trainmaster.services"  # in the scope of a request to the services' own origin


class ProxyHeaders:
    """Trusts `X-Forwarded-For`, `-Proto` and `-Host` where the connection comes from one of `trusted`, and from
    nobody else."""

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app, self._trusted = app, trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope.get("client") and self._trusts(scope["client"][0]):
            self._believe(scope)
        await self._app(scope, receive, send)

    def _trusts(self, text: str) -> bool:
        address = addresses.canonical(addresses.seen(text))
        return address is not None and addresses.within(address, self._trusted)

    def _believe(self, scope: Scope) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        client = addresses.seen(scope["client"][0])
        # Each proxy appends the address that it saw; what precedes the first untrusted one is that sender's own claim.
        hops = [hop.strip() for name, value in scope["headers"] if name == b"x-forwarded-for"
                for hop in value.decode("latin-1").split(",")]  # fmt: skip
        while hops and self._trusts(client) and _is_address(hop := addresses.seen(hops.pop())):
            client = hop
        scope["client"] = (client, 0)
        if (proto := headers.get(b"x-forwarded-proto", "").strip().lower()) in ("http", "https"):
            scope["scheme"] = {"http": "ws", "https": "wss"}[proto] if scope["type"] == "websocket" else proto
        if host := headers.get(b"x-forwarded-host", "").rpartition(",")[2].strip():
            kept = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [(b"host", host.encode("latin-1")), *kept]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class StripPortalPrefix:
    """Removes `/node/HOST/PORT` from the front of paths: of Open OnDemand's proxies, `/rnode` passes the rest of the
    path on, and `/node` all of it. Nothing here needs the prefix: redirects and the web page's links are relative."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            # The path as it was sent decides, and the decoded one follows: cut apart, they could end up different.
            raw = bytes(scope.get("raw_path") or quote(scope["path"]).encode())
            if match := _NODE.match(raw):
                raw = raw[match.end() :]
                scope = {**scope, "path": unquote(raw.decode("latin-1")), "raw_path": raw}
        await self._app(scope, receive, send)


class ServicesOrigin:
    """Marks requests to the services' own origin, a port or a host name that serves nothing but services."""

    def __init__(self, app: ASGIApp, origin: Origin, port: int | None) -> None:
        self._app, self._origin, self._port = app, origin, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and self._is_meant(scope):
            scope[SERVICES] = True
            if not scope["path"].startswith("/proxy/"):
                if scope["type"] == "websocket":
                    await receive()
                    await send({"type": "websocket.close", "code": 1008, "reason": ""})
                else:
                    await envelope(404, "This address serves only services in jobs.")(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_meant(self, scope: Scope) -> bool:
        if self._port is not None:
            return bool(scope.get("server")) and scope["server"][1] == self._port
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1").lower()
        usual = ":443" if self._origin.scheme == "https" else ":80"
        return host.removesuffix(usual) == self._origin.netloc
