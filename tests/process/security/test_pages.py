"""Pages of jobs: what they get from their visitors, and how browsers may interpret the master's answers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.process.api.conftest import log_in
from tests.support.api.browser import HTML, Browser
from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.api.people import PASSWORD, person
from tests.support.master import MasterProcess, free_port, serving
from tests.support.security.services import trap


@pytest.fixture(scope="module")
def open_trap(user_with_slots: Api) -> Iterator[str]:
    """The path to a service for everybody."""
    task_id, path = trap(user_with_slots, everybody=True)
    yield path
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


@pytest.fixture(scope="module")
def closed_trap(user_with_slots: Api) -> Iterator[str]:
    task_id, path = trap(user_with_slots)
    yield path
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


def heard(answer: object) -> dict[str, str]:
    """What reached the service."""
    return dict(answer.json)  # type: ignore[attr-defined]


# -- H3: passwords --------------------------------------------------------------------------------------------------


def test_a_job_that_plays_the_masters_challenge_is_not_heard(open_trap: str, user_with_slots: Api) -> None:
    for challenge in ('Basic realm="trainmaster", charset="UTF-8"', 'basic realm="x"', "Negotiate", 'Digest realm="x"'):
        answer = Api(user_with_slots.url).get(f"{open_trap}say", **{"WWW-Authenticate": challenge})
        assert (answer.status, "www-authenticate" in answer.headers) == (401, False)
    assert (
        "bearer"
        in Api(user_with_slots.url).get(f"{open_trap}say", **{"WWW-Authenticate": "bearer"}).headers["www-authenticate"]
    )


@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC ", "Digest", "Negotiate"])
def test_a_password_that_a_browser_repeats_does_not_reach_a_job(
    open_trap: str, user_with_slots: Api, scheme: str
) -> None:
    secret = base64.b64encode(b"victim:Passw0rd-x").decode()
    answer = Api(user_with_slots.url).call("GET", open_trap, headers={"Authorization": f"{scheme} {secret}"})
    assert (answer.status, "authorization" in heard(answer)) == (200, False)


def test_master_opens_no_browser_password_prompt(closed_trap: str, user_with_slots: Api) -> None:
    answer = Api(user_with_slots.url).call("GET", closed_trap, headers=HTML)
    assert (answer.status, "www-authenticate" in answer.headers) == (303, False)


# -- L2: cookies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cookie",
    [
        "x=1;auth={}",
        "x=1;  auth={}",
        "x=1;\tauth={}",
        "x=1; y=2, auth={}",
        "auth={};x=1",
        "auth ={}; x=1",
        "AUTH={}; x=1",
        "__Host-auth={}; x=1",
        'x=1; auth="{}"',
        "x=1; ;auth={};",
        "x=1; trainmaster-pass={}",
        "x=1; auth=a; auth={}",
    ],
)
def test_masters_cookie_never_reaches_job_in_any_spelling(open_trap: str, user_with_slots: Api, cookie: str) -> None:
    answer = Api(user_with_slots.url).call("GET", open_trap, headers={"Cookie": cookie.format(user_with_slots.token)})
    assert answer.status == 200
    assert user_with_slots.token not in answer.content.decode()
    assert heard(answer)["cookie"] == "x=1"


@pytest.mark.parametrize(
    "cookie",
    [
        "auth=evil",
        " auth = evil; Path=/",
        "AUTH=evil",
        "__Host-auth=evil; Secure; Path=/",
        "=auth=evil",
        "auth",
        "trainmaster-pass=evil",
        "trainmaster-form=evil; Path=/login",
    ],
)
def test_a_service_sets_no_cookie_of_the_masters(open_trap: str, user_with_slots: Api, cookie: str) -> None:
    assert "set-cookie" not in Api(user_with_slots.url).get(f"{open_trap}say", **{"Set-Cookie": cookie}).headers


def test_a_services_cookies_stay_with_it(open_trap: str, user_with_slots: Api) -> None:
    for told in ("a=1", "a=1; Path=/", "a=1; Domain=example.org; Path=/api"):
        answer = Api(user_with_slots.url).get(f"{open_trap}say", **{"Set-Cookie": told})
        assert answer.headers["set-cookie"] == f"a=1; Path={open_trap}"
    deep = Api(user_with_slots.url).get(f"{open_trap}say", **{"Set-Cookie": f"a=1; HttpOnly; Path={open_trap}deep"})
    assert deep.headers["set-cookie"] == f"a=1; HttpOnly; Path={open_trap}deep"


# -- H4: pages of jobs ----------------------------------------------------------------------------------------------


def enter(running: MasterProcess, path: str, name: str = "determined", password: str = "") -> Browser:
    """Somebody who has followed a link to a task and logged in."""
    browser = Browser(running.url)
    asked = browser.get(path)
    browser.follow(browser.log_in(asked.headers["location"], name, password or running.password))
    return browser


def test_page_of_another_users_job_is_sandboxed(
    running: MasterProcess, admin_with_slots: Api, closed_trap: str, open_trap: str
) -> None:
    owner = enter(running, closed_trap)
    assert "content-security-policy" not in owner.get(closed_trap).headers
    assert "x-frame-options" not in owner.get(closed_trap).headers
    visitor = enter(running, closed_trap, "admin")
    for answer in (visitor.get(closed_trap), Browser(running.url).get(open_trap), admin_with_slots.get(closed_trap)):
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts ")
        assert "allow-same-origin" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_pass_to_a_task_opens_nothing_else(running: MasterProcess, user_with_slots: Api, closed_trap: str) -> None:
    browser = enter(running, closed_trap)
    (name, word) = next((name, word) for (path, name), word in browser.cookies.items() if path == closed_trap)
    assert name == "trainmaster-pass"
    nobody = Api(user_with_slots.url)
    assert nobody.call("GET", closed_trap, headers={"Cookie": f"{name}={word}"}).status == 200
    assert nobody.call("GET", "/api/v1/me", headers={"Cookie": f"{name}={word}"}).status == 401
    for header in ({"Cookie": f"auth={word}"}, {"Authorization": f"Bearer {word}"}):
        assert nobody.call("GET", "/api/v1/me", headers=header).status == 401
        assert nobody.call("GET", closed_trap, headers=header).status in (401, 303)
    task_id, other = trap(user_with_slots)
    assert nobody.call("GET", other, headers={"Cookie": f"{name}={word}"}).status == 401
    session, _, mac = word.partition(".")
    for forged in (f"{int(session) + 1}.{mac}", f"{session}.", session, f"{session}.{'0' * 64}", "x.y", "-1.z"):
        assert nobody.call("GET", closed_trap, headers={"Cookie": f"{name}={forged}"}).status == 401
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


def test_the_sessions_cookie_alone_does_nothing_in_a_job(running: MasterProcess, closed_trap: str) -> None:
    browser = enter(running, closed_trap)
    session = next(word for (_, name), word in browser.cookies.items() if name == "auth")
    nobody = Api(running.url)
    assert nobody.call("POST", closed_trap, raw=b"", headers={"Cookie": f"auth={session}"}).status == 401
    for cookie in (browser.cookie_for(closed_trap), f"auth={session}"):
        foreign = {"Cookie": cookie, "Origin": "http://127.0.0.1:9999"}
        assert nobody.call("POST", closed_trap, raw=b"", headers=foreign).status in (401, 403)
    own = {"Cookie": browser.cookie_for(closed_trap), "Origin": browser.origin}
    assert nobody.call("POST", closed_trap, raw=b"", headers=own).status == 200
    for origin in ("http://127.0.0.1:9999", "null", "http://evil.example"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(  # type: ignore[call-overload]
                f"ws{running.url[4:]}{closed_trap}",
                additional_headers={"Cookie": browser.cookie_for(closed_trap)},
                origin=origin,
                proxy=None,
            )


def test_logging_out_ends_the_passes_too(running: MasterProcess, closed_trap: str) -> None:
    browser = enter(running, closed_trap)
    assert browser.get(closed_trap).status == 200
    page = {"X-Trainmaster": "page", "Cookie": browser.cookie_for("/session")}
    ended = Api(running.url).call("DELETE", "/session", headers=page)
    assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (200, True)
    assert browser.get(closed_trap).status == 303


# -- an origin of their own -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart() -> Iterator[tuple[MasterProcess, str]]:
    """A master whose services have a port of their own, and where that is."""
    port = free_port()
    config = f"""
        services_url: http://127.0.0.1:{port}
        resource_manager: {{type: local, slots: 2, poll_interval: 0.2}}
    """
    with serving(config) as process:
        yield process, f"http://127.0.0.1:{port}"


def test_services_live_on_an_origin_of_their_own(apart: tuple[MasterProcess, str]) -> None:
    master, elsewhere = apart
    owner = Api(master.url, log_in(master, "determined"))
    task_id, path = trap(owner)
    browser = Browser(master.url)
    asked = browser.get(f"{path}deep?a=1")
    entered = browser.log_in(asked.headers["location"], "determined", master.password)
    assert elsewhere in browser.get("/login").headers["content-security-policy"]  # browsers hold redirects against it
    led = browser.get(entered.headers["location"])
    place = urlsplit(led.headers["location"])
    assert (led.status, f"{place.scheme}://{place.netloc}", place.path) == (303, elsewhere, f"{path}deep")
    ticket = parse_qs(place.query)["trainmaster-ticket"][0]
    given = browser.get(led.headers["location"])
    assert (given.status, given.headers["location"]) == (303, f"{path}deep?a=1")
    shown = browser.get(f"{elsewhere}{path}deep?a=1")
    assert shown.status == 200
    assert {"cookie", "authorization"}.isdisjoint(heard(shown))
    assert ticket not in shown.content.decode()
    # The ticket is spent, the pass counts only there, and nothing of the master's is there.
    stranger = Browser(elsewhere)
    assert stranger.get(led.headers["location"]).status == 401
    assert browser.get(f"{master.url}{path}").status == 303
    session = {"Cookie": browser.cookie_for("/api/v1/me")}
    assert Api(master.url).call("GET", "/api/v1/me", headers=session).status == 200
    for somewhere in ("/api/v1/me", "/login", "/info", "/stream", "/docs", "/api/x1/allocations/x/lease", "/"):
        assert Api(elsewhere, owner.token).call("GET", somewhere, headers=session).status == 404
    assert Api(elsewhere).call("GET", path, headers=session).status == 401
    # Programs show who they are, and go where they always went.
    for url in (master.url, elsewhere):
        assert Api(url, owner.token).get(path).status == 200
    page = {"Cookie": browser.cookie_for(path), "Origin": elsewhere}
    assert Api(elsewhere).call("POST", path, raw=b"", headers=page).status == 200
    assert Api(elsewhere).call("POST", path, raw=b"", headers={**page, "Origin": master.url}).status == 403
    owner.post(f"/api/v1/tasks/{task_id}/kill")


def test_a_colleagues_page_there_needs_no_sandbox(apart: tuple[MasterProcess, str]) -> None:
    master, _ = apart
    owner, chief = Api(master.url, log_in(master, "determined")), Api(master.url, log_in(master, "admin"))
    task_id, path = trap(owner)
    someone = person(chief, admin=True)
    browser = Browser(master.url)
    asked = browser.get(path)
    shown = browser.follow(browser.log_in(asked.headers["location"], someone.name, PASSWORD))
    assert (shown.status, "content-security-policy" in shown.headers) == (200, False)
    assert shown.headers["cross-origin-resource-policy"] == "same-origin"
    owner.post(f"/api/v1/tasks/{task_id}/kill")


# -- the form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "to",
    [
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "javascript:alert(1)",
        "evil",
        "/\t/evil.example",
        "",
        "/x\r\nSet-Cookie: a=1",
        '/"><script>alert(1)</script>',
    ],
)
def test_the_form_leads_nowhere_else(running: MasterProcess, to: str) -> None:
    browser = Browser(running.url)
    form = f"/login?to={quote(to, safe='')}"
    page = browser.get(form)
    assert "<script" not in page.content.decode()
    assert f'value="{to}"' not in page.content.decode()
    entered = browser.log_in(form, "determined", running.password)
    assert entered.status == 303
    inside = to.startswith('/"')
    assert entered.headers["location"] == (quote(to, safe="/()") if inside else "/ui/")


def test_the_form_has_no_scripts_and_cannot_be_framed(running: MasterProcess) -> None:
    page = Browser(running.url).get("/login?to=/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    (style,) = re.findall("<style>(.*?)</style>", page.content.decode())
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy


def test_form_of_another_site_cannot_log_in(running: MasterProcess) -> None:
    browser = Browser(running.url)
    attacker = Browser(running.url)
    attacker.get("/login")
    for foreign in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert browser.log_in("/login", "determined", running.password, foreign).status == 403
    body = f"username=determined&password={running.password}&to=/docs&form=x".encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.call("POST", "/login", body, kind).status == 403
    browser.cookies.clear()
    assert browser.call("POST", "/login", body, kind).status == 403
    assert browser.call("POST", "/login", b"{}", {"Content-Type": "application/json"}).status == 400


def test_the_sessions_cookie_is_for_the_masters_own_pages(running: MasterProcess) -> None:
    entered = Browser(running.url).log_in("/login", "determined", running.password)
    told = entered.headers["set-cookie"]
    assert "auth=" in told
    assert "HttpOnly" in told
    assert "SameSite=Strict" in told


# -- what browsers are told -----------------------------------------------------------------------------------------

TOLD = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
}


def test_all_responses_carry_security_headers(user: Api, job: Job) -> None:
    answers = {
        path: user.get(path)
        for path in ("/info", "/nothing/here", "/api/v1/me", "/api/v1/experiments", "/docs", "/openapi.json", "/stream")
    }
    answers["lane"] = job.send([job.training(1, loss=1.0)])
    answers["unauthenticated"] = Api(user.url).get("/api/v1/me")
    answers["too large"] = Api(user.url).call("POST", "/api/v1/auth/login", raw=b"x" * 100_000)
    answers["nul"] = user.get("/api/v1/users/%00")
    for path, answer in answers.items():
        assert TOLD.items() <= answer.headers.items(), path
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"], path
        assert "server" not in answer.headers, path


def test_the_apis_page_works_under_its_policy(user: Api) -> None:
    page = user.get("/docs")
    policy = page.headers["content-security-policy"]
    scripts = re.findall(rb"<script>(.*?)</script>", page.content, re.DOTALL)
    assert scripts
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" in policy
    assert "script-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_users_files_are_never_shown_as_pages(user: Api, job: Job) -> None:
    for path in (
        f"/api/v1/experiments/{job.experiment_id}/model_def",
        f"/api/v1/tasks/{job.task_id}/context_directory",
        f"/api/v1/experiments/{job.experiment_id}/file_tree",
        f"/api/v1/trials/{job.trial_id}/logs",
    ):
        kind = user.get(path).headers["content-type"]
        assert not kind.startswith(("text/html", "image/svg", "application/xhtml", "text/xml")), path
    packed = job.context()
    assert "attachment" in packed.headers["content-disposition"]
