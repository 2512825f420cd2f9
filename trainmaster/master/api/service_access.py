"""Decides who may use a service in a job, and redirects browsers to it.

Programs send a token in a header. A browser sends a pass, a cookie that is good for one task's services and nothing
else; it gets one with the cookie of its session or, where services have an origin of their own, with a ticket.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import HTTPConnection

from trainmaster.master.http import cookies
from trainmaster.master.http.dependencies import (
    SAFE,
    ServedMaster,
    in_header,
    same_page,
    session_cookie,
    user_of,
    user_of_session,
)
from trainmaster.master.http.origins import SERVICES
from trainmaster.master.http.redirects import redirect, redirect_to_services
from trainmaster.master.http.session_guard import ConnectionHolder
from trainmaster.master.services.access import tickets
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.errors import Forbidden, NotFound, Unauthenticated
from trainmaster.master.services.tasks import proxies
from trainmaster.master.services.tasks.proxies import NOT_THERE, JobService

TICKET = "trainmaster-ticket"  # in a query


@dataclass(frozen=True)
class ServiceAccess:
    """An admitted request to a service. `caller`: None where the service requires credentials of its own, or none."""

    service: JobService
    caller: Caller | None = None

    @property
    def holder(self) -> ConnectionHolder:
        """The user for whom the connection is kept open."""
        if self.caller is None:
            return ConnectionHolder(self.service.owner_id)
        return ConnectionHolder(self.caller.user_id, self.caller.session_id, self.caller.inside)

    @property
    def by_owner(self) -> bool:
        return self.caller is not None and self.caller.user_id == self.service.owner_id


def admit(master: ServedMaster, connection: HTTPConnection, name: str) -> ServiceAccess:
    """Return the caller and the service that they may use. Raises Unauthenticated, Forbidden, NotFound."""
    service = master.job_services.find(name)
    open_to_all = service is not None and service.open
    caller = _caller(master, connection, name)
    if caller is None and not open_to_all:
        raise Unauthenticated("Log in first: `det user login`.")
    if service is None:
        raise NotFound(NOT_THERE.format(name))
    if caller is not None and not open_to_all:
        master.job_services.enter(service, caller)
    proxies.check_listener(service)
    return ServiceAccess(service, caller)


def _caller(master: ServedMaster, connection: HTTPConnection, name: str) -> Caller | None:
    """Authenticate by a header, a ticket, or a pass to this task; the session's own cookie is never enough. Raises
    Unauthenticated, Forbidden."""
    if token := in_header(connection):
        return user_of(master, token)
    task_id = name.partition(":")[0]
    if ticket := ticket_of(connection):
        return user_of_session(master, master.tickets.redeem(ticket, tickets.service_of(task_id)))
    if master.services_url is not None and SERVICES not in connection.scope:
        return None  # ports of one host share cookies: a pass counts only where it was given
    shown = cookies.shown(connection, cookies.PASS)
    number = master.tickets.session_in(shown[0], task_id) if len(shown) == 1 else None
    if number is None:
        return None
    try:
        caller = user_of_session(master, number)
    except Unauthenticated:
        return None  # like no pass: log in again
    harmless = connection.scope.get("method") in SAFE
    if not harmless and not same_page(connection, master, caller):
        origin = connection.headers.get("origin")
        raise Forbidden(f"A page of {origin} may not use this task with its visitor's cookie.")
    return caller


def ticket_of(connection: HTTPConnection) -> str:
    return connection.query_params.get(TICKET, "")


# -- browsers on their way in ---------------------------------------------------------------------------------------


def lead_in(master: ServedMaster, request: Request, name: str, error: Unauthenticated) -> Response:
    """Redirect a browser without a pass to one: by the form to a session, by its session's cookie to a pass or, where
    services have an origin of their own, to a ticket for one. Raises `error` for everybody else."""
    if request.method != "GET" or in_header(request):
        raise error
    here = asked_for(request)
    if SERVICES in request.scope:
        raise Unauthenticated("Open this from the master's own page or with `det`: you have no pass to it here.")
    if token := session_cookie(request):
        try:
            return _pass_on(master, request, name, user_of(master, token), here)
        except Unauthenticated:
            pass  # the session has ended
    if "text/html" not in request.headers.get("accept", ""):
        raise error
    return redirect(f"/login?{urlencode({'to': here})}")


def _pass_on(master: ServedMaster, request: Request, name: str, caller: Caller, here: str) -> Response:
    task_id = name.partition(":")[0]
    if master.services_url is None:
        return with_pass(master, request, name, caller, here)
    ticket = master.tickets.issue(caller, tickets.service_of(task_id))
    joint = "&" if "?" in here else "?"
    return redirect_to_services(master.services_url, f"{here}{joint}{TICKET}={ticket}")


def with_pass(master: ServedMaster, request: Request, name: str, caller: Caller, here: str) -> Response:
    if caller.session_id is None:
        raise Forbidden("A pass is for the sessions of users.")
    back = redirect(here)
    word = master.tickets.pass_for(caller.session_id, name.partition(":")[0])
    secure = request.url.scheme == "https"
    path = f"/proxy/{quote(name, safe=':')}/"
    # Lax: the navigation began on the master's page, or on any other that has a link.
    back.set_cookie(cookies.PASS, word, path=path, httponly=True, samesite="lax", secure=secure)
    return back


def asked_for(request: HTTPConnection) -> str:
    """Return the requested path and query, without a ticket, as they were sent."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    path: str = raw.decode("latin-1")
    query = query_of(request)
    return f"{path}?{query}" if query else path


def query_of(connection: HTTPConnection) -> str:
    """Return the query as it was sent, without a ticket."""
    parts = connection.scope["query_string"].decode("latin-1").split("&")
    return "&".join(part for part in parts if part.partition("=")[0] != TICKET)
