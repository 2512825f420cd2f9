"""Dependencies that every router needs: the services, and the authenticated caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.requests import HTTPConnection
from starlette.types import Scope

from trainmaster.config.limits import Limits
from trainmaster.config.networks import Origin
from trainmaster.master.admission.connections import note_sender
from trainmaster.master.admission.password_checks import PasswordChecks
from trainmaster.master.admission.password_guesses import PasswordGuesses
from trainmaster.master.admission.report_queue import ReportQueue
from trainmaster.master.admission.request_shares import Shares
from trainmaster.master.http import cookies
from trainmaster.master.http.caller_threads import CallerThreads, note_caller, place_of
from trainmaster.master.http.job_calls import JobCalls
from trainmaster.master.http.origins import SERVICES
from trainmaster.master.http.permissions import CLOSED_INSIDE, ENDPOINTS, MASKED, closed_inside
from trainmaster.master.http.session_guard import SCOPE_KEY, ConnectionHolder
from trainmaster.master.services import addresses
from trainmaster.master.services.access import identity, locations
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import ADMINISTRATORS, Permission
from trainmaster.master.services.errors import AccessDenied, Forbidden, NotFound, Unauthenticated
from trainmaster.master.services.logs.master_log import RecentLog
from trainmaster.master.services.master import Master

OPENED = 0.005  # seconds that a stream or a long poll costs the master to open
RECEIVED = 50e6  # bytes of a large body that cost the master a second
# These check themselves whether the attempt ended long ago.
CHECKED_LATER = (
    "/api/x1/allocations/{allocation_id}/reports",
    "/api/v1/allocations/{allocation_id}/signals/preemption",
)
OF_AGENTS = "/api/x1/agents/"
SAFE = ("GET", "HEAD", "OPTIONS")
PAGE = ("x-trainmaster", "page")  # browsers let no foreign page send this header
_KNOWN = "trainmaster.caller"  # in the scope of a request whose caller was authenticated early


@dataclass
class ServedMaster(Master):
    """The master as HTTP serves it: its services, and what decides which request waits."""

    config: Mapping[str, Any] = field(default_factory=dict)  # as the administrator wrote it
    services_url: Origin | None = None  # where browsers find services in jobs, if not here
    guesses: PasswordGuesses = field(default_factory=PasswordGuesses)
    shares: Shares = field(default_factory=lambda: Shares(Limits().waiting))
    recent_log: RecentLog = field(default_factory=RecentLog)
    password_checks: PasswordChecks = field(default_factory=PasswordChecks)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.job_calls = JobCalls(self)
        self.report_turns = ReportQueue(self.shares.anybody)
        self.threads = CallerThreads(self.shares, self.settings.limits)


async def _master(request: Request) -> ServedMaster:
    """Return a coroutine although it waits for nothing: FastAPI would send a plain function to a thread and back."""
    master: ServedMaster = request.app.state.master
    return master


UsesMaster = Annotated[ServedMaster, Depends(_master)]


def bearer(request: HTTPConnection) -> str:
    """Return the token of the request: from a header of Determined's clients, or from the cookie of a web page; empty
    without one.

    A browser sends the cookie with requests of any page. So the cookie alone permits no change without the header that
    pages of other origins cannot set. Raises Forbidden.
    """
    return in_header(request) or _in_cookie(request)


def in_header(request: HTTPConnection) -> str:
    """Return the token in a program's header; empty when there is none."""
    for header in ("authorization", "grpc-metadata-x-allocation-token", "x-user-token"):
        scheme, _, token = request.headers.get(header, "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return token.strip()
    return ""


def _in_cookie(request: HTTPConnection) -> str:
    token = session_cookie(request)
    if not token or request.scope.get("method", "GET") in SAFE:
        return token
    if request.headers.get(PAGE[0]) != PAGE[1]:
        raise Forbidden("A page that changes something with its user's cookie must send X-Trainmaster: page.")
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        raise Forbidden("A page that uses its user's cookie must send JSON, with Content-Type: application/json.")
    return token


def session_cookie(request: HTTPConnection) -> str:
    """Return the token in the master's cookie; empty when there is none. Raises Forbidden for several: one is
    foreign."""
    if SERVICES in request.scope:
        return ""  # ports of one host share cookies
    token = cookies.shown(request, cookies.SESSION)
    if len(token) > 1:
        raise Forbidden(f"There are {len(token)} cookies {cookies.SESSION!r}: remove this site's cookies, and log in.")
    return token[0] if token else ""


def same_page(connection: HTTPConnection, master: ServedMaster, caller: Caller) -> bool:
    """Whether a browser with a cookie sends this from a page of ours: where its user logged in, or where services
    have their own origin, from there. What the request says of the host does not count: portals rewrite it."""
    origin = connection.headers.get("origin")
    if origin is None:
        return True  # no browser leaves it out where it matters
    if SERVICES in connection.scope:
        return origin == str(master.services_url)
    return caller.session_id is not None and origin == master.identities.origin_of(caller.session_id) != ""


def peer_of(connection: HTTPConnection) -> str:
    """Return the address that a connection comes from, in its canonical spelling; empty when it has none."""
    return addresses.seen(connection.client.host) if connection.client else ""


async def admit_large(master: ServedMaster, scope: Scope) -> None:
    """`admit`, in a thread."""
    connection = HTTPConnection(scope)
    await master.threads.check(in_header(connection), peer_of(connection), admit, master, connection)


def admit(master: ServedMaster, connection: HTTPConnection) -> None:
    """Authenticate the caller before a large body is read; the result is kept for the routers. Raises
    Unauthenticated."""
    if connection.scope["path"].startswith("/proxy/"):
        return  # passed on as it arrives; the service behind it may need no log-in
    if connection.scope["path"].startswith(OF_AGENTS):
        agent_id, _, rest = connection.scope["path"].removeprefix(OF_AGENTS).partition("/")
        if rest == "enrol":
            raise Unauthenticated("An agent that enrols must send only the key.")
        master.agents.admit(agent_id, bearer(connection))
    else:
        connection.scope[_KNOWN] = _known(connection, master)


class LargeBodySenders:
    """The admitted senders of large bodies (`limits.Senders`)."""

    def __init__(self, master: ServedMaster) -> None:
        self._shares = master.shares

    async def rest(self, scope: Scope) -> None:
        if (who := self._who(scope)) is not None:
            await self._shares.rest(who)

    @asynccontextmanager
    async def turn(self, scope: Scope) -> AsyncIterator[None]:
        """In the block, one body of a sender is worked on; its others wait."""
        if (who := self._who(scope)) is None:  # an agent's
            yield
            return
        async with self._shares.one_of((who, "large"), 1, "share"):
            yield

    def charge(self, scope: Scope, size: int) -> None:
        if (who := self._who(scope)) is not None:
            self._shares.charge(who, size / RECEIVED)

    def _who(self, scope: Scope) -> int | str | None:
        caller: Caller | None = scope.get(_KNOWN)
        return None if caller is None else caller.allocation_id or caller.user_id


def _known(connection: HTTPConnection, master: ServedMaster) -> Caller:
    token = bearer(connection)
    if not token:
        raise Unauthenticated("Log in first: `det user login`.")
    caller = master.identities.authenticate(token)
    if caller.session_id is not None or caller.inside is not None:
        connection.scope[SCOPE_KEY] = ConnectionHolder(caller.user_id, caller.session_id, caller.inside)
    return caller


async def _caller(request: Request, master: UsesMaster) -> Caller:
    known: Caller | None = request.scope.get(_KNOWN)
    if known is None and identity.is_of_job(token := bearer(request)):
        checked_later = request.scope["route"].path in CHECKED_LATER
        known = await master.job_calls.caller(token, checked_later=checked_later)
    if known is not None and not master.settings.roles:
        return _let_in(request, master, known)
    shown = bearer(request)
    caller = await master.threads.check(shown, peer_of(request), _let_in, request, master, known)
    master.threads.remember(shown, caller)
    return caller


def _let_in(request: Request, master: ServedMaster, known: Caller | None) -> Caller:
    """Authenticate and authorize the caller; queries the database for unknown callers, and for roles."""
    caller = known or _known(request, master)
    note_sender(request.scope, caller.allocation_id or caller.user_id)
    note_caller(request.scope, caller)
    return _allowed(request, master, caller)


def _allowed(request: Request, master: ServedMaster, caller: Caller) -> Caller:
    """Return the caller, with the workspaces for which they hold the endpoint's permission. Raises Forbidden."""
    endpoint = f"{request.method} {request.scope['route'].path}"
    rule = ENDPOINTS.get(endpoint)
    if rule is None:
        raise Forbidden("This cannot be called: it has no entry in the table of permissions.")
    if caller.inside is not None and closed_inside(endpoint):
        raise Forbidden(CLOSED_INSIDE)
    if not master.settings.roles:
        if isinstance(rule, Permission) and caller.allocation_id is None and endpoint not in MASKED:
            caller.require(rule)
        return caller
    if caller.allocation_id is not None:
        if isinstance(rule, Permission):
            _check_reach(request, master, caller, rule)
        return caller
    caller = with_roles(master, caller)
    if not isinstance(rule, Permission):
        return caller
    if not caller.holds_somewhere(rule):
        raise AccessDenied(f"This needs the permission {rule.name}, which none of your roles gives.")
    caller = replace(caller, workspaces=caller.where(rule))
    home = master.locations.workspace_of(request.path_params) if caller.workspaces is not None else None
    if home is not None:
        caller.check(home, locations.absent(request.path_params))
    return caller


def _check_reach(request: Request, master: ServedMaster, caller: Caller, rule: Permission) -> None:
    """Check that a job sees only its own workspace, and elsewhere what its owner may see. Raises Forbidden. What jobs
    may do at all is said where they are let in."""
    home = master.locations.workspace_of(request.path_params)
    if home is None or home == master.locations.workspace_of({"trial_id": str(caller.trial_id)}):
        return
    owner = master.identities.get_user(caller.user_id)
    where = master.roles.grants_of(owner.id, admin=owner.admin).get(rule, frozenset())
    if where is not None and home not in where:
        raise NotFound(locations.absent(request.path_params))


def user_of(master: ServedMaster, token: str) -> Caller:
    """Authenticate `token`, with the roles' permissions, outside of a request: for long-lived connections. Raises
    Unauthenticated, and Forbidden for a job."""
    caller = master.identities.authenticate(token)
    if caller.allocation_id is not None:
        raise Forbidden("A job's token cannot do this.")
    return with_roles(master, caller)


def user_of_session(master: ServedMaster, session_id: int) -> Caller:
    """Return the same for a session, given its number. Raises Unauthenticated."""
    return with_roles(master, master.identities.by_session(session_id))


def with_roles(master: ServedMaster, caller: Caller) -> Caller:
    if not master.settings.roles:
        return caller
    grants = master.roles.grants_of(caller.user_id, admin=caller.admin)
    if caller.inside is not None:
        grants = {permission: where for permission, where in grants.items() if permission not in ADMINISTRATORS}
    return replace(caller, grants=grants)


async def _shared(
    request: Request, master: UsesMaster, caller: Annotated[Caller, Depends(_caller)]
) -> AsyncIterator[Caller]:
    """Yield the caller, while the endpoint works in a thread within the caller's share. What waits in the event loop,
    long polls and streams, takes no place of it."""
    if iscoroutinefunction(request.scope["route"].endpoint):
        await _opened(master, caller)
        yield caller
        return
    async with master.shares.one_of(place_of(caller), master.settings.limits.share, "share"):
        yield caller


async def _opened(master: ServedMaster, caller: Caller) -> None:
    if caller.allocation_id is None:
        await master.shares.rest(caller.user_id)
        master.shares.charge(caller.user_id, OPENED)


async def caller_outside_of_threads(request: Request, master: ServedMaster) -> Caller:
    """AnyCaller, for a route that resolves no dependencies and whose endpoint is a coroutine."""
    caller = await _caller(request, master)
    await _opened(master, caller)
    return caller


async def _user(caller: Annotated[Caller, Depends(_shared, scope="function")]) -> Caller:
    if caller.allocation_id is not None:
        raise Forbidden("A job's token cannot do this.")
    return caller


async def stranger(request: Request, master: UsesMaster) -> AsyncIterator[None]:
    """For endpoints that anybody may call and that work in a thread: holds a place of the callers' address."""
    async with master.threads.stranger(peer_of(request)):
        yield


Stranger = Annotated[None, Depends(stranger, scope="function")]
AnyCaller = Annotated[Caller, Depends(_shared, scope="function")]
UserCaller = Annotated[Caller, Depends(_user)]


def own_allocation(caller: Caller, allocation_id: str) -> None:
    """Check that a job reports for its own allocation only. Raises Forbidden."""
    if caller.allocation_id != allocation_id and not (caller.allocation_id is None and caller.admin):
        raise Forbidden(f"This token does not belong to the allocation {allocation_id}.")


def own_trial(caller: Caller, trial_id: int) -> None:
    """Check that the caller is the trial's own job. Raises Forbidden."""
    if caller.trial_id != trial_id and not (caller.allocation_id is None and caller.admin):
        raise Forbidden(f"This token does not belong to trial {trial_id}.")
