"""Browser log-in and log-out, and tickets for connections that cannot carry an authorization header.

`/login` is a form without scripts, for a browser that has no session. `/session` is for the web page, which never sees
a token. Both set the cookie without a path: a browser then scopes it to the master's root, under whatever prefix a
portal has put it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import secrets
from typing import Literal
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from trainmaster.master.api.auth import LoginAnswer, LoginRequest, enter
from trainmaster.master.api.schemas.entities import User
from trainmaster.master.http import cookies
from trainmaster.master.http.dependencies import (
    PAGE,
    ServedMaster,
    Stranger,
    UserCaller,
    UsesMaster,
    bearer,
    peer_of,
    user_of,
)
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.redirects import HOME, inside, redirect
from trainmaster.master.services.access import tickets
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.errors import Forbidden, Invalid, NotActive, ServiceError, Unauthenticated

router = APIRouter(tags=["auth"])

LIFE = 7 * 86400  # seconds that a browser keeps the session's cookie: the session's life
KNOWN_FOR = 365 * 86400  # seconds for which a browser keeps the mark that distinguishes it from guessers
FORM_LIFE = 3600  # seconds in which a served form may be sent
LONGEST_FORM = 16 * 1024  # bytes
_STYLE = "body{font:16px sans-serif;max-width:22em;margin:15vh auto}input,button{font:inherit;width:100%;margin:.2em 0 1em;padding:.4em;box-sizing:border-box}"  # noqa: E501
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Log in</title>
<style>{style}</style></head>
<body><h1>Log in</h1><p role="alert">{said}</p>
<form method="post" action="/login" autocomplete="on">
<label>Name <input name="username" autocomplete="username" required autofocus></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label>
<input type="hidden" name="to" value="{to}"><input type="hidden" name="form" value="{form}">
<button>Log in to {cluster}</button></form>
<p><a href="{to}">I have logged in here before: go on</a></p></body></html>
"""


@router.get("/login", include_in_schema=False)
def form(master: UsesMaster, request: Request, _: Stranger, to: str = HOME) -> HTMLResponse:
    return _form(master, request, to)


@router.post("/login", include_in_schema=False)
async def send_form(request: Request, master: UsesMaster) -> Response:
    """Handle the form as browsers send it; answers 303 to the page that its user wanted."""
    given = await _given(request)
    to = given.get("to", HOME)
    _check_form(master, request, given.get("form", ""))
    body = LoginRequest(username=given.get("username", ""), password=given.get("password", ""))
    try:
        answer = await enter(request, body, master, origin=_origin(request))
    except ServiceError as error:
        return _form(master, request, to, error.message, 403)
    except HTTPException as error:
        return _form(master, request, to, str(error.detail), error.status_code)
    back = redirect(to)
    _set_session(request, back, answer)
    return back


class PageSession(Shape):
    """What every page shows. `permissions`: each one that the user holds, with the workspaces for which they do; null
    for everywhere. `roles`: whether permissions alone decide; else things belong to their owners."""

    user: User | None
    roles: bool
    permissions: dict[str, list[int] | None]
    cluster_name: str
    version: str
    message: str


class PostSession(LoginRequest):
    """A name with its password, or a ticket for the page; with `look` the answer is whom the ticket signs in, and
    nothing else happens."""

    username: str = ""
    password: str = ""
    ticket: str = ""
    look: bool = False


@router.get("/session")
def session(request: Request, master: UsesMaster, _: Stranger) -> PageSession:
    """Return what the web page shows of the master and of its user; without a user before log-in."""
    try:
        caller = user_of(master, token) if (token := bearer(request)) else None
    except (Unauthenticated, NotActive):
        caller = None
    held = {one: caller.where(one) for one in Permission if caller.holds_somewhere(one)} if caller else {}
    message = master.site_policies.message(shown=True)
    return PageSession(
        user=User.of(master.identities.get_user(caller.user_id)) if caller else None,
        permissions={one.name: None if where is None else sorted(where) for one, where in held.items()},
        roles=master.settings.roles,
        cluster_name=master.settings.cluster_name,
        version=master.settings.version,
        message=message.text if message else "",
    )


@router.post("/session")
async def begin(request: Request, body: PostSession, master: UsesMaster) -> Response:
    """Log in a user of a web page: like `/api/v1/auth/login`, with the token in a cookie only."""
    if request.headers.get(PAGE[0]) != PAGE[1]:
        raise Forbidden("This is for the master's own page, which must send X-Trainmaster: page.")
    if body.look:
        user = await master.threads.check("", peer_of(request), master.tickets.shown_user, body.ticket)
        return JSONResponse({"user": User.of(user).model_dump(mode="json", by_alias=True)})
    if body.ticket:
        token, user = await master.threads.check(
            "", peer_of(request), master.tickets.enter, body.ticket, _origin(request)
        )
        answer = LoginAnswer(token=token, user=User.of(user), client_mark="")
    else:
        answer = await enter(request, body, master, origin=_origin(request))
    shown = JSONResponse({"user": answer.user.model_dump(mode="json", by_alias=True)})
    _set_session(request, shown, answer)
    return shown


@router.delete("/session")
def end(request: Request, master: UsesMaster, caller: UserCaller) -> Response:
    """Log out a user of a web page."""
    del caller
    master.identities.log_out(bearer(request))
    gone = JSONResponse({})
    gone.headers["Set-Cookie"] = f"{cookies.SESSION}=; Max-Age=0; HttpOnly; SameSite=Strict"
    return gone


class PostTicket(Body):
    """What a ticket is for: `/stream`, `/api/x1/live`, the WebSockets of one task's services, or the web page, where it
    logs the caller in."""

    purpose: Literal["stream", "live", "service", "page"]
    task_id: str = ""


class TicketAnswer(Shape):
    ticket: str
    seconds: float


@router.post("/api/x1/tickets")
def ticket(body: PostTicket, master: UsesMaster, caller: UserCaller) -> TicketAnswer:
    """Issue a ticket, which is good once: it admits a WebSocket, as `?trainmaster-ticket=` or in its first message,
    where no header can be sent, or logs a browser in, as `/ui/sign-in#ticket=`."""
    if body.purpose == "service" and not body.task_id:
        raise Invalid("taskId: name the task whose service the ticket is for.")
    if body.purpose == "page":
        return TicketAnswer(ticket=master.tickets.issue_for_page(caller), seconds=tickets.LIFE_OF_LINK)
    purpose = tickets.service_of(body.task_id) if body.purpose == "service" else body.purpose
    return TicketAnswer(ticket=master.tickets.issue(caller, purpose), seconds=tickets.LIFE)


# -- inside -------------------------------------------------------------------------------------------------------


def _form(master: ServedMaster, request: Request, to: str, message: str = "", status: int = 200) -> HTMLResponse:
    nonce = secrets.token_urlsafe(24)
    cluster = master.settings.cluster_name or "the master"
    words = {"said": message, "to": inside(to), "form": _mac(master, nonce), "cluster": cluster}
    text = _PAGE.format(style=_STYLE, **{key: html.escape(word) for key, word in words.items()})
    style = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    # Browsers check all redirects that follow against the form's target.
    targets = " ".join(filter(None, ("'self'", str(master.services_url or ""))))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; form-action {targets}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "Cache-Control": "no-store"}
    page = HTMLResponse(text, status, headers)
    secure = request.url.scheme == "https"
    page.set_cookie(cookies.FORM, nonce, max_age=FORM_LIFE, httponly=True, samesite="strict", secure=secure)
    return page


async def _given(request: Request) -> dict[str, str]:
    """Return the fields of a small form; of several with one name the first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Invalid("This accepts only the form at /login; programs log in at /api/v1/auth/login.")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_FORM:
            raise Invalid("The form is too long.")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}


def _check_form(master: ServedMaster, request: Request, sent: str) -> None:
    """Raise Forbidden unless the form was sent to this browser and comes from its page: so no other site can log
    somebody in as somebody else."""
    nonces = cookies.shown(request, cookies.FORM)
    shown = len(nonces) == 1 and hmac.compare_digest(_mac(master, nonces[0]).encode(), sent.encode())
    if not shown or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("This form was not shown to this browser, or too long ago: go back, reload it, and send it.")


def _mac(master: ServedMaster, nonce: str) -> str:
    return hmac.new(master.settings.secret, f"form\0{nonce}".encode(), "sha256").hexdigest()


def _origin(request: Request) -> str:
    """Return the origin of the page that sends this, as its browser reports it; empty without one, or for a sandboxed
    page's `null`."""
    origin = request.headers.get("origin", "")
    return origin if origin.startswith(("http://", "https://")) and len(origin) < 300 else ""


def _set_session(request: Request, answer: Response, given: LoginAnswer) -> None:
    secure = "; Secure" if request.url.scheme == "https" else ""
    words = ((cookies.CLIENT, given.client_mark, KNOWN_FOR), (cookies.SESSION, given.token, LIFE))
    for name, word, life in (one for one in words if one[1]):
        # No path: see above. Starlette's own always has one.
        cookie = f"{name}={word}; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"
        answer.headers.append("Set-Cookie", cookie)


@router.get("/det/interactive/{task_id}/{rest:path}", response_class=RedirectResponse, status_code=307)
async def interactive(task_id: str, rest: str) -> RedirectResponse:
    """Redirect a browser that Determined's client opens to the task's own pages. The rest of the path holds its kind,
    name and pool, which Determined's page shows meanwhile."""
    del rest
    return redirect(f"/proxy/{quote(task_id, safe='')}/", 307)
