"""What passes through the master to services in jobs, and what does not."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.support.api.browser import Browser
from tests.support.api.http import Api
from tests.support.api.people import give, person, workspace_of
from tests.support.api.tasks import ended, generic, launch, lines, until_ready
from tests.support.master import MasterProcess, free_port, wait_for
from trainmaster.launchers.shell import find_sshd

Json = dict[str, Any]

# A service that shows what it is asked, on the port that the test has chosen.
MIRROR = """
import http.server, json, sys, threading
class Mirror(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = {"method": self.command, "path": self.path, "headers": headers, "body": body}
        content = json.dumps(told).encode()
        self.send_response(418 if "teapot" in self.path else 200)
        self.send_header("content-length", str(len(content)))
        self.send_header("set-cookie", "auth=stolen; Path=/")
        self.send_header("set-cookie", "mine=1")
        self.send_header("service-worker-allowed", "/")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Mirror)
print("mirror stands", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def other(admin_with_slots: Api) -> Api:
    """Somebody else."""
    return person(admin_with_slots).api


@pytest.fixture(scope="module")
def mirror(user_with_slots: Api) -> tuple[str, int, int]:
    """A generic task of `determined` with a service on a port, and one that anybody may use."""
    port, open_port = free_port(), free_port()
    content = base64.b64encode(MIRROR.encode()).decode()
    files = [{"path": "mirror.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    config = f"""
        resources: {{slots: 0}}
        entrypoint: python3 mirror.py {port} & exec python3 mirror.py {open_port}
        environment: {{proxy_ports: [{{proxy_port: {port}}}, {{proxy_port: {open_port}, unauthenticated: true}}]}}
    """
    task_id = generic(user_with_slots, config, contextDirectory=files)
    wait_for(lambda: lines(user_with_slots, task_id).count("mirror stands") == 2, "the mirrors")
    wait_for(lambda: user_with_slots.get(f"/proxy/{task_id}:{port}/").status == 200, "the way to the mirror")
    return task_id, port, open_port


def test_requests_pass_as_they_are(user_with_slots: Api, mirror: tuple[str, int, int]) -> None:
    task_id, port, _ = mirror
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = user_with_slots.call(
            method, f"/proxy/{task_id}:{port}/a%2Fb/c?x=%20y&x=2", raw=b"a body" if method == "POST" else b""
        )
        told = answer.json
        assert (answer.status, told["method"], told["path"]) == (200, method, "/a%2Fb/c?x=%20y&x=2")
        assert told["body"] == ("a body" if method == "POST" else "")
        assert told["headers"]["x-forwarded-prefix"] == f"/proxy/{task_id}:{port}"
        assert told["headers"]["x-forwarded-for"] == "127.0.0.1"
    assert user_with_slots.get(f"/proxy/{task_id}:{port}/teapot").status == 418
    large = user_with_slots.call("POST", f"/proxy/{task_id}:{port}/", raw=b"x" * 3_000_000)
    assert len(large.json["body"]) == 3_000_000
    moved = user_with_slots.get(f"/proxy/{task_id}:{port}", q="1")
    assert (moved.status, moved.headers["location"]) == (308, f"/proxy/{task_id}:{port}/?q=1")


def test_proxy_keeps_callers_credentials_from_service(user_with_slots: Api, mirror: tuple[str, int, int]) -> None:
    task_id, port, _ = mirror
    shown = {
        "Cookie": f"a=1; auth={user_with_slots.token}; b=2",
        "X-User-Token": f"Bearer {user_with_slots.token}",
        "Connection": "x-mine",
        "X-Mine": "1",
    }
    answer = user_with_slots.call("GET", f"/proxy/{task_id}:{port}/", headers=shown)
    assert user_with_slots.token not in answer.content.decode()
    assert answer.json["headers"]["cookie"] == "a=1; b=2"
    assert "x-mine" not in answer.json["headers"]
    assert answer.headers["set-cookie"] == f"mine=1; Path=/proxy/{task_id}:{port}/"
    assert "service-worker-allowed" not in answer.headers
    led = Api(user_with_slots.url).call(
        "GET", f"/proxy/{task_id}:{port}/?a=1", headers={"Cookie": f"auth={user_with_slots.token}"}
    )
    assert (led.status, led.headers["location"]) == (303, f"/proxy/{task_id}:{port}/?a=1")
    cookie, *about = led.headers["set-cookie"].split("; ")
    assert {"HttpOnly", f"Path=/proxy/{task_id}:{port}/", "SameSite=lax"} <= set(about)
    by_pass = Api(user_with_slots.url).call("GET", f"/proxy/{task_id}:{port}/", headers={"Cookie": cookie})
    assert (by_pass.status, "cookie" in by_pass.json["headers"]) == (200, False)


def test_service_answers_owner_and_admin_unless_port_is_open(
    user_with_slots: Api, admin_with_slots: Api, mirror: tuple[str, int, int], other: Api
) -> None:
    task_id, port, open_port = mirror
    nobody = Api(user_with_slots.url)
    path = f"/proxy/{task_id}:{port}/"
    assert [api.get(path).status for api in (user_with_slots, admin_with_slots, other, nobody)] == [200, 200, 403, 401]
    assert nobody.get(f"/proxy/{task_id}:{open_port}/").status == 200
    assert Api(user_with_slots.url, "no such token").get(path).status == 401


def test_a_person_with_a_browser_is_asked_for_a_password(
    running: MasterProcess, user_with_slots: Api, mirror: tuple[str, int, int]
) -> None:
    task_id, port, _ = mirror
    path = f"/proxy/{task_id}:{port}/"
    person = Browser(user_with_slots.url)
    asked = person.get(f"{path}?a=1")
    assert (asked.status, urlsplit(asked.headers["location"]).path) == (303, "/login")
    assert "www-authenticate" not in asked.headers
    refused = person.log_in(asked.headers["location"], "determined", "guess")
    assert (refused.status, "is wrong" in refused.content.decode()) == (403, True)
    entered = person.log_in(asked.headers["location"], "determined", running.password)
    assert (entered.status, entered.headers["location"]) == (303, f"{path}?a=1")
    shown = person.follow(entered)
    assert (shown.status, shown.json["path"]) == (200, "/?a=1")
    assert {"authorization", "cookie"}.isdisjoint(shown.json["headers"])


@pytest.mark.parametrize("name", ["", ":1", ":65535", ":notaport", ":999999"])
def test_proxy_forwards_only_requested_ports(user_with_slots: Api, mirror: tuple[str, int, int], name: str) -> None:
    task_id, _, _ = mirror
    answer = user_with_slots.get(f"/proxy/{task_id}{name}/")
    assert (answer.status, "Nothing listens" in answer.sentence) == (404, True)


def test_there_is_no_way_to_other_addresses(user_with_slots: Api) -> None:
    for name in ("no-such-task", "127.0.0.1:22", "localhost", "http:%2F%2Fexample.com", "1.2.3.4"):
        assert user_with_slots.get(f"/proxy/{name}/").status == 404
        assert Api(user_with_slots.url).get(f"/proxy/{name}/").status == 401


# -- what a job may announce ----------------------------------------------------------------------------------------


ANNOUNCE = """
import json, os, sys, urllib.request
for address in sys.argv[1:]:
    url = os.environ["DET_MASTER"] + "/api/v1/allocations/" + os.environ["DET_ALLOCATION_ID"] + "/proxy_address"
    body = json.dumps({"proxyAddress": address}).encode()
    told = {"Authorization": "Bearer " + os.environ["DET_SESSION_TOKEN"], "Content-Type": "application/json"}
    try:
        status = urllib.request.urlopen(urllib.request.Request(url, body, told)).status
    except urllib.error.HTTPError as error:
        status = error.code
    print(address, status)
"""


def test_a_job_announces_itself_and_nothing_else(user_with_slots: Api) -> None:
    content = base64.b64encode(ANNOUNCE.encode()).decode()
    files = [{"path": "say.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    asked = "127.0.0.1 127.0.0.2 169.254.169.254 10.1.2.3 0.0.0.0 ::1 localhost"
    task_id = generic(
        user_with_slots, f"{{entrypoint: python3 say.py {asked}, resources: {{slots: 0}}}}", contextDirectory=files
    )
    ended(user_with_slots, task_id)
    answers = [line.split() for line in lines(user_with_slots, task_id) if line.endswith((" 200", " 400"))]
    assert [status for _, status in answers] == ["200"] + ["400"] * 6


# -- shells ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell(user_with_slots: Api) -> Json:
    if find_sshd("") is None:
        pytest.skip("there is no sshd on this machine")
    made = launch(
        user_with_slots,
        "shell",
        config={"resources": {"slots": 0}, "environment": {"environment_variables": ["GREETING=a 'b' $c"]}},
    )
    until_ready(user_with_slots, made["id"])
    found: Json = user_with_slots.get(f"/api/v1/shells/{made['id']}").json["shell"]
    return found


TUNNEL = """
import asyncio, os, sys
from websockets.asyncio.client import connect
async def main(uri):
    async with connect(uri, compression=None) as socket:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async def up():
            while data := await reader.read(4096):
                await socket.send(data)
            await socket.close()
        task = asyncio.create_task(up())
        async for data in socket:
            os.write(1, data)
        task.cancel()
asyncio.run(main(sys.argv[1]))
"""


def ssh(api: Api, shell: Json, folder: Path, *command: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    """As a client does: OpenSSH through a WebSocket; the host key is checked."""
    tunnel, identity, known = folder / "tunnel.py", folder / "key", folder / "known"
    tunnel.write_text(TUNNEL)
    identity.write_text(key or shell["privateKey"])
    identity.chmod(0o600)
    known.write_text(f"{shell['id']} {shell['hostPublicKey']}\n")
    uri = api.url.replace("http", "ws", 1) + f"/proxy/{shell['id']}/"
    options = {
        "ProxyCommand": f"{sys.executable} {tunnel} {uri}",
        "UserKnownHostsFile": str(known),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "IdentityFile": str(identity),
    }
    arguments = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    user = shell["agentUserGroup"]["user"]
    return subprocess.run(
        ["ssh", "-F", "none", *arguments, f"{user}@{shell['id']}", *command],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_shell_is_entered_with_its_key(user_with_slots: Api, shell: Json, tmp_path: Path) -> None:
    done = ssh(user_with_slots, shell, tmp_path, 'echo "$GREETING / $DET_TASK_TYPE"; pwd; exit 7')
    assert (done.returncode, done.stdout.splitlines()[0]) == (7, "a 'b' $c / SHELL"), done
    assert done.stdout.splitlines()[1].endswith("/workdir")


def test_another_key_does_not_open_it(user_with_slots: Api, shell: Json, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    done = ssh(user_with_slots, shell, tmp_path, "true", key=(tmp_path / "other").read_text())
    assert (done.returncode, "Permission denied" in done.stderr) == (255, True)


def test_shell_key_is_hidden_from_other_users_lists_and_logs(
    user_with_slots: Api, admin_with_slots: Api, other: Api, shell: Json
) -> None:
    path = f"/api/v1/shells/{shell['id']}"
    assert admin_with_slots.get(path).json["shell"]["privateKey"] == shell["privateKey"] != ""
    assert other.get(path).json["shell"]["privateKey"] == ""
    assert "PRIVATE KEY" not in user_with_slots.get("/api/v1/shells").content.decode()
    assert "PRIVATE KEY" not in "".join(lines(user_with_slots, shell["id"]))


def test_shell_key_is_shown_only_to_roles_that_may_end_shell(rbac_admin: Api) -> None:
    home, _ = workspace_of(rbac_admin)
    viewer, editor = person(rbac_admin), person(rbac_admin)
    give(rbac_admin, 4, viewer.id, home)
    give(rbac_admin, 5, editor.id, home)
    made = launch(rbac_admin, "shell", config={"resources": {"slots": 0}}, workspaceId=home)
    path = f"/api/v1/shells/{made['id']}"
    assert viewer.api.get(path).json["shell"]["privateKey"] == ""
    assert editor.api.get(path).json["shell"]["privateKey"] == made["privateKey"] != ""
    assert viewer.api.post(f"{path}/kill").status == 403
    assert editor.api.post(f"{path}/kill").status == 200
    ended(rbac_admin, made["id"])


# -- WebSockets -----------------------------------------------------------------------------------------------------

# The pieces of JupyterLab that the launcher and the master speak with, where the real one is not installed.
ECHO = """
import asyncio, sys
from websockets.asyncio.server import serve
async def echo(socket):
    await socket.send(repr(sorted((k.lower(), v) for k, v in socket.request.headers.raw_items())))
    await socket.send(socket.request.path)
    async for message in socket:
        if message == "go":
            await socket.close(4321, "as asked")
            return
        await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), subprotocols=["v1.kernel"], ping_interval=None):
        print("echo stands", flush=True)
        await asyncio.Future()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def echo(user_with_slots: Api) -> str:
    """The address of a WebSocket service behind the master, without the scheme."""
    port = free_port()
    content = base64.b64encode(ECHO.encode()).decode()
    files = [{"path": "echo.py", "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}]
    config = f"""
        resources: {{slots: 0}}
        entrypoint: {sys.executable} echo.py {port}
        environment: {{proxy_ports: [{{proxy_port: {port}, default_service_id: true}}]}}
    """
    task_id = generic(user_with_slots, config, contextDirectory=files)
    wait_for(lambda: "echo stands" in lines(user_with_slots, task_id), "the echo")
    wait_for(lambda: user_with_slots.get(f"/proxy/{task_id}/").status != 404, "the way to it")
    return user_with_slots.url.replace("http", "ws", 1) + f"/proxy/{task_id}/"


def talk(uri: str, speak: Callable[[ClientConnection], Any], **options: Any) -> Any:
    async def main() -> Any:
        # Without pings: on a busy machine 20 s without an answer to one are no fault.
        async with connect(uri, open_timeout=60, ping_interval=None, **options) as socket:
            return await speak(socket)

    return asyncio.run(main())


def test_websockets_pass_in_both_directions(user_with_slots: Api, echo: str) -> None:
    async def speak(socket: ClientConnection) -> tuple[str, str, list[str | bytes], Any, int | None, str | None]:
        headers, path = str(await socket.recv()), str(await socket.recv())
        found = []
        for message in ("text", b"\x00\xff", "x" * 500_000):
            await socket.send(message)
            found.append(await socket.recv())
        await socket.send("go")
        await socket.wait_closed()
        return headers, path, found, socket.subprotocol, socket.close_code, socket.close_reason

    shown = {"Authorization": f"Bearer {user_with_slots.token}", "Cookie": "a=1"}
    headers, path, found, protocol, code, reason = talk(
        echo + "deep/er?a=1", speak, additional_headers=shown, subprotocols=["v1.kernel"]
    )
    assert path == "/deep/er?a=1"
    assert found == ["text", b"\x00\xff", "x" * 500_000]
    assert (protocol, code, reason) == ("v1.kernel", 4321, "as asked")
    assert (user_with_slots.token in headers, "('cookie', 'a=1')" in headers) == (False, True)


@pytest.mark.parametrize("case", ["nobody", "somebody else", "another site", "no such service"])
def test_websocket_without_access_is_refused(user_with_slots: Api, other: Api, echo: str, case: str) -> None:
    headers, uri, expected = {
        "nobody": ({}, echo, 401),
        "somebody else": ({"Authorization": f"Bearer {other.token}"}, echo, 403),
        "another site": ({"Cookie": f"auth={user_with_slots.token}", "Origin": "https://elsewhere.example"}, echo, 401),
        "no such service": ({"Authorization": f"Bearer {user_with_slots.token}"}, echo.rstrip("/") + "x/", 404),
    }[case]

    async def speak(socket: ClientConnection) -> None:
        raise AssertionError("it was let in")

    with pytest.raises(InvalidStatus) as refused:
        talk(uri, speak, additional_headers=headers)
    assert refused.value.response.status_code == expected
