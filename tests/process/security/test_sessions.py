"""Whose session it is: cookies without their page, WebSockets from elsewhere, sessions that have ended, passwords, and
what reaches a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine, text
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.api.browser import Browser
from tests.support.api.http import Api, Json
from tests.support.api.jobs import Job
from tests.support.api.people import PASSWORD, enter, person
from tests.support.api.tasks import generic, lines
from tests.support.bound import bind
from tests.support.master import MasterProcess, free_port, wait_for
from tests.support.security.services import file
from trainmaster.cli.terminal import Plain, clean
from trainmaster.client.session_calls import hashed
from trainmaster.config.master import parse_master
from trainmaster.master import main
from trainmaster.master.http.session_guard import ConnectionHolder, SessionGuard
from trainmaster.master.services.access.identity import Identities, ValidCredentials
from trainmaster.master.services.store import Store

PAGE = {"X-Trainmaster": "page"}


def cookie(api: Api) -> dict[str, str]:
    return {"Cookie": f"auth={api.token}"}


# -- H4: a request that only its cookie speaks for ------------------------------------------------------------------

CHANGES: Any = (
    ("POST", "/api/v1/tokens", {"userId": 1}),
    ("POST", "/api/v1/experiments/1/archive", {}),
    ("PUT", "/api/v1/experiments/1/labels/x", {}),
    ("PATCH", "/api/v1/users/1", {"displayName": "x"}),
    ("DELETE", "/api/v1/experiments/1", None),
    ("POST", "/api/v1/auth/logout", {}),
    ("POST", "/api/x1/tickets", {"purpose": "stream"}),
)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize("origin", [None, "same", "http://127.0.0.1:9999", "https://evil.example", "null"])
def test_a_cookie_alone_changes_nothing(
    user: Api, method: str, path: str, body: Json | None, origin: str | None
) -> None:
    said = {} if origin is None else {"Origin": user.url if origin == "same" else origin}
    nobody = Api(user.url)
    answer = nobody.call(method, path, body, headers={**cookie(user), **said})
    assert (answer.status, "X-Trainmaster: page" in answer.sentence) == (403, True)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        plain = nobody.call(method, path, raw=b"{}", headers={**cookie(user), **said, "Content-Type": kind})
        assert plain.status == 403
    asked = nobody.call(
        "OPTIONS", path, headers={**cookie(user), **said, "Access-Control-Request-Headers": "x-trainmaster"}
    )
    assert not [name for name in asked.headers if name.startswith("access-control")]


def test_a_page_says_that_it_is_one_and_speaks_json(user: Api) -> None:
    nobody, path, body = Api(user.url), "/api/v1/users/setting", {"settings": []}  # type: ignore[var-annotated]
    assert nobody.call("GET", "/api/v1/me", headers=cookie(user)).status == 200
    assert nobody.call("POST", path, body, headers={**cookie(user), **PAGE}).status == 200
    for kind in ("text/plain", "application/jsonx", "application/x-www-form-urlencoded"):
        headers = {**cookie(user), **PAGE, "Content-Type": kind}
        assert nobody.call("POST", path, raw=b'{"settings": []}', headers=headers).status == 403
    # The published client sends JSON with its token, and says nothing of its kind.
    assert user.call("POST", path, raw=b'{"settings": []}', headers={"Content-Type": ""}).status == 200


def test_two_cookies_of_one_name_are_refused(user: Api) -> None:
    nobody = Api(user.url)
    for value in (f"auth=x; auth={user.token}", f"auth={user.token}; auth=x", f"auth={user.token};auth={user.token}"):
        answer = nobody.call("GET", "/api/v1/me", headers={"Cookie": value})
        assert (answer.status, "2 cookies" in answer.sentence) == (403, True)


def test_a_page_begins_and_ends_a_session_without_seeing_a_token(master: MasterProcess, anonymous: Api) -> None:
    body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    assert anonymous.post("/session", body).status == 403
    begun = anonymous.call("POST", "/session", body, headers=PAGE)
    told = begun.headers["set-cookie"]
    session = told.partition(";")[0]
    assert (begun.status, set(begun.json)) == (200, {"user"})
    assert {"HttpOnly", "SameSite=Strict"} <= set(told.split("; "))
    assert "Path" not in told
    assert session.partition("=")[2] not in begun.content.decode()
    assert anonymous.call("GET", "/api/v1/me", headers={"Cookie": session}).json["user"]["username"] == "determined"
    assert anonymous.call("DELETE", "/session", headers={"Cookie": session}).status == 403
    assert anonymous.call("DELETE", "/session", headers={"Cookie": session, **PAGE}).status == 200
    assert anonymous.call("GET", "/api/v1/me", headers={"Cookie": session}).status == 401


# -- L3: passwords --------------------------------------------------------------------------------------------------


def test_a_stolen_page_does_not_get_the_account(admin: Api) -> None:
    someone = person(admin)
    new = f"{PASSWORD}0"
    by_page = {**cookie(someone.api), **PAGE}
    nobody = Api(admin.url)
    path = f"/api/x1/users/{someone.id}/password"
    body = {"password": hashed(new), "isHashed": True}
    assert nobody.call("POST", f"{someone.path}/password", hashed(new), headers=by_page).status == 403
    assert nobody.call("PATCH", someone.path, body, headers=by_page).status == 403
    assert nobody.call("POST", path, body, headers=by_page).status == 403
    wrong = nobody.call("POST", path, {**body, "currentPassword": hashed("guess")}, headers=by_page)
    assert (wrong.status, "present password is wrong" in wrong.sentence) == (403, True)
    assert enter(admin.url, someone.name).status == 200
    right = nobody.call("POST", path, {**body, "currentPassword": hashed(PASSWORD)}, headers=by_page)
    assert right.status == 200
    assert enter(admin.url, someone.name, new).status == 200
    # The published client sends the text alone, with its token.
    assert someone.api.post(f"{someone.path}/password", hashed(PASSWORD)).status == 200


def test_the_present_password_is_not_guessed_there(admin: Api) -> None:
    someone = person(admin)
    body = {"password": hashed(f"{PASSWORD}0"), "isHashed": True, "currentPassword": hashed("guess")}
    path = f"/api/x1/users/{someone.id}/password"
    assert 429 in [someone.api.post(path, body).status for _ in range(8)]


def test_password_change_by_page_requires_admins_own_password(admin: Api) -> None:
    chief, someone = person(admin, admin=True), person(admin)
    path, by_page = f"/api/x1/users/{someone.id}/password", {**cookie(chief.api), **PAGE}
    body = {"password": hashed(f"{PASSWORD}0"), "isHashed": True}
    assert Api(admin.url).call("POST", path, body, headers=by_page).status == 403
    told = {**body, "currentPassword": hashed(PASSWORD)}
    assert Api(admin.url).call("POST", path, told, headers=by_page).status == 200
    assert person(admin).api.post(path, told).status == 403


def test_a_new_password_ends_access_tokens_on_request(admin: Api) -> None:
    someone = person(admin)
    token = someone.api.post("/api/v1/tokens", {"userId": someone.id}).json["token"]
    path = f"/api/x1/users/{someone.id}/password"
    body = {"password": hashed(f"{PASSWORD}0"), "isHashed": True, "currentPassword": hashed(PASSWORD)}
    assert someone.api.post(path, body).status == 200
    assert Api(admin.url, token).get("/api/v1/me").status == 200
    body = {**body, "currentPassword": hashed(f"{PASSWORD}0"), "endAccessTokens": True}
    assert someone.api.post(path, body).status == 200
    assert Api(admin.url, token).get("/api/v1/me").status == 401
    assert someone.api.get("/api/v1/me").status == 200


def test_the_first_users_do_not_share_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(main.INITIAL_PASSWORD, raising=False)
    config = parse_master("")
    made = main._initial_passwords(config, tmp_path)
    assert set(made) == {"admin", "determined"}
    assert made["admin"] != made["determined"]
    left = tmp_path / "initial-password"
    assert left.read_text() == f"admin: {made['admin']}\ndetermined: {made['determined']}\n"
    assert left.stat().st_mode & 0o777 == 0o600
    assert main._initial_passwords(config, tmp_path) == made
    left.write_text("One-for-all-1\n")  # of an earlier version
    assert set(main._initial_passwords(config, tmp_path).values()) == {"One-for-all-1"}
    monkeypatch.setenv(main.INITIAL_PASSWORD, "Told-for-both-1")
    assert set(main._initial_passwords(config, tmp_path).values()) == {"Told-for-both-1"}


# -- WebSockets -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stream(api: Api, query: str = "", host: str = "", **headers: str) -> Iterator[ClientConnection]:
    """`host`: what a portal on the way makes of the address."""
    place = urlsplit(api.url)
    uri = f"ws://{host or place.netloc}/stream{query}"
    way = create_connection((str(place.hostname), int(place.port or 0)), timeout=30)
    with connect(uri, additional_headers=headers, proxy=None, sock=way) as socket:
        socket.send(json.dumps({"sync_id": "1", "subscribe": {}}))
        assert json.loads(socket.recv(30)) == {"sync_id": "1", "complete": False}
        yield socket


def ticket(api: Api, **body: str) -> str:
    answer = api.post("/api/x1/tickets", {"purpose": "stream", **body})
    assert (answer.status, answer.json["seconds"]) == (200, 30.0)
    return f"?trainmaster-ticket={answer.json['ticket']}"


def test_ticket_admits_once_behind_portal_that_rewrites_host(user: Api, master: MasterProcess) -> None:
    page = Browser(master.url)
    page.log_in("/login", "determined", master.password)
    told = {"Cookie": page.cookie_for("/stream"), "Origin": "https://portal.example"}
    word = ticket(user)
    with stream(user, word, host="node17:8080", **told):
        pass
    with pytest.raises(InvalidStatus, match="401"), stream(user, word):
        pass


def test_cookie_is_checked_against_origin_of_its_login(user: Api, master: MasterProcess) -> None:
    page = Browser(master.url)
    form = page.get("/login")
    assert form.status == 200
    page.log_in("/login", "determined", master.password, {"Origin": "https://portal.example"})
    told = {"Cookie": page.cookie_for("/stream")}
    with stream(user, host="node17:8080", Origin="https://portal.example", **told):
        pass
    for host, origin in (("evil.example", "http://evil.example"), ("node17:8080", "http://node17:8080")):
        with pytest.raises(InvalidStatus, match="403"), stream(user, host=host, Origin=origin, **told):
            pass


@pytest.mark.parametrize("case", ["for something else", "too late", "made up", "of a session that has ended"])
def test_no_other_ticket_admits(admin: Api, engine: Engine, case: str) -> None:
    someone = person(admin)
    word = ticket(someone.api)
    if case == "for something else":
        word = ticket(someone.api, purpose="service", taskId="x")
    if case == "too late":
        with engine.begin() as connection:  # time passes
            connection.execute(text("UPDATE tickets SET expires_at = now() - interval '1 second'"))
    if case == "made up":
        word = f"{word}x"
    if case == "of a session that has ended":
        someone.api.post("/api/v1/auth/logout")
    with pytest.raises(InvalidStatus, match="401"), stream(admin, word):
        pass


def test_a_job_gets_no_ticket(job: Job) -> None:
    assert job.api.post("/api/x1/tickets", {"purpose": "stream"}).status == 403


# -- L6: what is open when a session ends ---------------------------------------------------------------------------

ECHO = """
import asyncio, sys
from websockets.asyncio.server import serve
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1])):
        async def raw(reader, writer):
            while data := await reader.read(100):
                writer.write(data)
        await asyncio.start_server(raw, "127.0.0.1", int(sys.argv[2]))
        print("echo stands", flush=True)
        await asyncio.Future()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def echoes(user_with_slots: Api) -> Iterator[tuple[str, str, str]]:
    """A task with a WebSocket service and one for bytes: its id and the paths to them."""
    port, raw = free_port(), free_port()
    entries = [{"proxy_port": port}, {"proxy_port": raw, "proxy_tcp": True}]
    config = {
        "resources": {"slots": 0},
        "entrypoint": f"exec {sys.executable} echo.py {port} {raw}",
        "environment": {"proxy_ports": entries},
    }
    task_id = generic(user_with_slots, json.dumps(config), contextDirectory=[file("echo.py", ECHO)])
    wait_for(lambda: "echo stands" in lines(user_with_slots, task_id), "the echo")
    wait_for(lambda: user_with_slots.get(f"/proxy/{task_id}:{port}/").status != 404, "the way to it")
    yield task_id, f"/proxy/{task_id}:{port}/", f"/proxy/{task_id}:{raw}/"
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


@pytest.mark.parametrize("how", ["deactivated", "revoked", "logged out"])
def test_open_connections_end_with_their_session(admin_with_slots: Api, echoes: tuple[str, str, str], how: str) -> None:
    """A WebSocket, raw bytes and a followed log of one session; another session's stay."""
    with contextlib.ExitStack() as stack:
        _end_what_is_open(stack, admin_with_slots, echoes, how)


def _end_what_is_open(
    stack: contextlib.ExitStack, admin_with_slots: Api, echoes: tuple[str, str, str], how: str
) -> None:
    task_id, messages, raw = echoes
    someone = person(admin_with_slots, admin=True)
    made = someone.api.post("/api/v1/tokens", {"userId": someone.id}).json
    by_token = how == "revoked"
    mine = Api(admin_with_slots.url, made["token"]) if by_token else someone.api

    def opened(api: Api, path: str) -> ClientConnection:
        socket = _entered(
            stack, f"ws{api.url[4:]}{path}", additional_headers={"Authorization": f"Bearer {api.token}"}, proxy=None
        )
        socket.send(b"here")
        assert socket.recv(30) in (b"here", "here")
        return socket

    followed = threading.Thread(target=lambda: list(mine.lines(f"/api/v1/tasks/{task_id}/logs", follow=True)))
    followed.start()
    sockets, other = [opened(mine, messages), opened(mine, raw)], opened(admin_with_slots, messages)
    if how == "deactivated":
        assert admin_with_slots.call("PATCH", someone.path, {"active": False}).status == 200
    elif by_token:
        revoke = {"tokenId": made["tokenId"], "setRevoked": True}
        assert admin_with_slots.call("PATCH", f"/api/v1/tokens/{made['tokenId']}", revoke).status == 200
    else:
        assert someone.api.post("/api/v1/auth/logout").status == 200
    for socket in sockets:
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(30)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "The session has ended.")
    followed.join(30)
    assert not followed.is_alive()
    other.send("still")
    assert other.recv(30) == "still"


def _entered(stack: contextlib.ExitStack, uri: str, **options: Any) -> ClientConnection:
    return stack.enter_context(connect(uri, **options))  # type: ignore[no-any-return]


def test_many_open_connections_are_one_question() -> None:
    """What the database is asked does not grow with what is open."""
    asked: list[tuple[int, int]] = []

    def look(_: object, sessions: set[int], users: set[int], attempts: set[str]) -> ValidCredentials:
        asked.append((len(sessions), len(users)))
        return ValidCredentials(frozenset(users), frozenset(sessions - {7}), frozenset(attempts - {"ended"}))

    async def main() -> None:
        guard = SessionGuard(bind(cast(Store, None)))
        with contextlib.ExitStack() as stack:
            open_ = [stack.enter_context(guard.watching(ConnectionHolder(1, number % 50))) for number in range(1000)]
            owners = stack.enter_context(guard.watching(ConnectionHolder(2)))
            await asyncio.wait_for(open_[7].wait(), 30)
            assert [number % 50 for number, ended in enumerate(open_) if ended.is_set()] == [7] * 20
            assert not owners.is_set()
            lives = stack.enter_context(guard.watching(ConnectionHolder(2, None, "lives")))
            ends = stack.enter_context(guard.watching(ConnectionHolder(2, None, "ended")))
            await asyncio.wait_for(ends.wait(), 30)
            assert not lives.is_set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Identities, "valid_credentials", look)
        asyncio.run(main())
    assert asked[0] == (50, 2)
    assert asked[1][1] == 2


# -- L4: terminals and arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text_", "shown"),
    [
        ("plain ascii\n", "plain ascii\n"),
        ("Übung 日本 ✓\t|\n", "Übung 日本 ✓\t|\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x9d0;t\x9cx", "x"),
        ("\x1bP+q544e\x1b\\x", "x"),
        ("\x1b", ""),
        ("a\x1b\x1b[31mb", "ab"),
        ("a\x08\x08b\x07\x7f\x00", "ab"),
        ("10%\r20%\r30%\n", "10%\n20%\n30%\n"),
        ("crlf\r\n", "crlf\n"),
        ("evil\u202egnp.exe\u2066", "evilgnp.exe"),
        ("\x1b]0;never ends", "0;never ends"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_printed(text_: str, shown: str) -> None:
    assert clean(text_) == shown


def test_a_sequence_in_pieces_is_none_either() -> None:
    import io

    stream_ = io.StringIO()
    out = Plain(stream_)
    for piece in ("\x1b", "[", "31m", "\x1b[", "2J"):
        out.write(piece)
    assert "\x1b" not in stream_.getvalue()


def test_det_strips_control_characters_from_logs(running: MasterProcess, user_with_slots: Api) -> None:
    words = r"\033]0;owned\007\033[31mred\033[0m \302\2332J bar\010 20%%\n"
    task_id = generic(user_with_slots, json.dumps({"entrypoint": ["printf", words], "resources": {"slots": 0}}))
    wait_for(lambda: any("red" in line for line in lines(user_with_slots, task_id)), "its words")
    said = running.det("task", "logs", task_id).stdout
    assert "red" in said
    assert "ba" in said
    assert "20%" in said
    assert not any(c in said for c in "\x1b\x07\x9b\r")
    told = [json.loads(line) for line in running.det("task", "logs", "--json", task_id).stdout.splitlines()]
    assert any("\x1b[31mred" in entry["log"] for entry in told)


def test_secrets_come_through_a_pipe(running: MasterProcess, admin_with_slots: Api) -> None:
    someone = person(admin_with_slots)
    token = someone.api.post("/api/v1/tokens", {"userId": someone.id}).json["token"]
    for how in (([], f"{token}\n"), ([token], "")):
        done = running.det("token", "login", *how[0], input=how[1])
        assert done.stdout == f"Logged in as user '{someone.name}'\n"
        assert ("visible in the process list" in done.stderr) == bool(how[0])
    assert running.det("token", "login", input="", check=False).returncode == 2
    running.det("token", "login", input=f"{admin_with_slots.token}\n")
    done = running.det("-u", "admin", "user", "create", f"{someone.name}b", input=f"{PASSWORD}\n")
    assert done.stderr == ""


# -- sessions that a link began -------------------------------------------------------------------------------------


def test_user_sees_and_ends_session_begun_by_their_link(admin: Api, master: MasterProcess) -> None:
    someone, stranger = person(admin), person(admin)
    link = someone.api.post("/api/x1/tickets", {"purpose": "page"}).json["ticket"]
    entered = Api(master.url).call(
        "POST", "/session", {"ticket": link}, headers={**PAGE, "Origin": "https://p.example"}
    )
    browser = Api(master.url, entered.headers["set-cookie"].partition(";")[0].removeprefix("auth="))
    begun, mine = someone.api.get("/api/x1/sessions").json["sessions"]
    assert (begun["description"], begun["origin"], begun["current"]) == (
        "by a link of det ui",
        "https://p.example",
        False,
    )
    assert mine["current"] is True
    refused = stranger.api.call("DELETE", f"/api/x1/sessions/{begun['id']}")
    assert (refused.status, browser.get("/api/v1/me").status) == (404, 200)
    assert someone.api.call("DELETE", f"/api/x1/sessions/{begun['id']}").status == 200
    assert browser.get("/api/v1/me").status == 401
    assert [one["id"] for one in someone.api.get("/api/x1/sessions").json["sessions"]] == [mine["id"]]
