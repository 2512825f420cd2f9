"""The middleware in front of the routers, in the order in which a request passes it."""

from __future__ import annotations

from functools import partial

from starlette.middleware import Middleware
from starlette.types import ASGIApp

from trainmaster.config.master import MasterConfig
from trainmaster.master.http.body_limit import BodyLimit
from trainmaster.master.http.conditional_get import ConditionalGet
from trainmaster.master.http.dependencies import LargeBodySenders, ServedMaster, admit_large
from trainmaster.master.http.error_envelope import AnsweredErrors, RefuseNul
from trainmaster.master.http.grpc_gateway import GrpcGateway
from trainmaster.master.http.origins import ProxyHeaders, ServicesOrigin, StripPortalPrefix
from trainmaster.master.http.security_headers import SecurityHeaders
from trainmaster.master.http.session_guard import SessionGuard
from trainmaster.master.http.statement_cancellation import StatementCancellation
from trainmaster.master.services.addresses import networks


def stack(config: MasterConfig, master: ServedMaster, guard: SessionGuard) -> list[Middleware]:
    """Return the middleware of a master. What the configuration does not use is left out."""
    limits = master.settings.limits
    proxies, services = networks(config.trusted_proxies), config.services_url
    return [
        Middleware(AnsweredErrors),
        *([Middleware(ProxyHeaders, proxies)] if proxies else ()),
        *([Middleware(ServicesOrigin, services, config.services_listener)] if services is not None else ()),
        Middleware(StripPortalPrefix),
        Middleware(SecurityHeaders, guard),
        Middleware(StatementCancellation, limits=limits),
        Middleware(BodyLimit, limits=limits, admit=partial(admit_large, master), senders=LargeBodySenders(master)),
        Middleware(ConditionalGet),
        Middleware(GrpcGateway),
        Middleware(RefuseNul),
    ]


def wrapped(app: ASGIApp, middleware: list[Middleware]) -> ASGIApp:
    """Return an application that passes requests through `middleware`, the first one first."""
    for layer in reversed(middleware):
        app = layer.cls(app, *layer.args, **layer.kwargs)
    return app
