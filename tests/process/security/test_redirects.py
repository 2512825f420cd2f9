"""No address of the master sends a browser to another host."""

from __future__ import annotations

import ast
import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.api.http import Api
from tests.support.master import MasterProcess
from trainmaster.master import api, http
from trainmaster.master.http import cookies
from trainmaster.master.http.origins import StripPortalPrefix
from trainmaster.master.http.redirects import HOME, inside

SOURCES = sorted(path for part in (api, http) for path in Path(part.__path__[0]).glob("*.py"))
TASK = "00000000-0000-4000-8000-000000000000"


def test_only_one_module_makes_redirections() -> None:
    makers = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RedirectResponse")
        or (isinstance(node, ast.Constant) and str(node.value) == "Location")
    }
    assert makers == {"redirects.py"}


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/%2Fevil.example/", "", "evil",
     "/%5Cevil.example", "/\tx", "/é", "javascript:alert(1)", "/" + "x" * 10_000],
)  # fmt: skip
def test_unsafe_redirect_target_becomes_home(to: str) -> None:
    assert inside(to) == HOME


@pytest.mark.parametrize("to", ["/", "/ui/trials/1", "/proxy/x/lab?path=//a", "/proxy/x//y", "/login?to=%2Fproxy%2F"])
def test_redirect_target_on_master_is_kept(to: str) -> None:
    assert inside(to) == to


def location(master: MasterProcess, target: str, token: str) -> tuple[int, str]:
    """Status and Location of a browser's request, sent as it is written here."""
    head = (
        f"GET {target} HTTP/1.1\r\nHost: master.example\r\nAccept: text/html\r\nConnection: close\r\n"
        f"Cookie: {cookies.SESSION}={token}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", master.port), 20) as client:
        client.sendall(head.encode())
        content = b""
        while piece := client.recv(65536):
            content += piece
    lines = content.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    found = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("location:")]
    return int(lines[0].split(" ")[1]), next(iter(found), "")


@pytest.mark.parametrize(
    "target",
    [
        f"/node%2Fh%2F1%2Fproxy/{TASK}/x//evil.example/",
        f"/node/h/1%2Fproxy%2F{TASK}%2Fx//evil.example/",
        f"/node%2Fh/1/proxy%2F{TASK}//evil.example/x",
        f"/node/h/1//evil.example/../proxy/{TASK}/x",
        f"/proxy/{TASK}%2F..%2F..//evil.example/",
        f"//evil.example/proxy/{TASK}/x",
        f"/proxy/%5Cevil.example/{TASK}",
        "/proxy/%2F%2Fevil.example",
        "/det/interactive/%2F%2Fevil.example/x",
        "/login?to=//evil.example",
        "/ui//evil.example",
    ],
)
def test_no_address_redirects_to_another_host(master: MasterProcess, user: Api, target: str) -> None:
    status, to = location(master, target, user.token)
    assert status < 500
    parts = urlsplit(to)
    assert (parts.scheme, parts.netloc) == ("", ""), to
    assert not to.startswith(("//", "/\\", "\\"))


def test_portal_prefix_is_cut_from_both_paths_alike() -> None:
    def cut(raw: bytes, path: str) -> tuple[str, bytes]:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append((scope["path"], scope["raw_path"]))

        asyncio.run(StripPortalPrefix(app)({"type": "http", "path": path, "raw_path": raw}, None, None))  # type: ignore[arg-type]
        return seen[0]  # type: ignore[no-any-return]

    assert cut(b"/node/h/8080/ui/a%20b", "/node/h/8080/ui/a b") == ("/ui/a b", b"/ui/a%20b")
    assert cut(b"/node/h/8080/proxy/t/a%2Fb", "/node/h/8080/proxy/t/a/b") == ("/proxy/t/a/b", b"/proxy/t/a%2Fb")
    encoded = b"/node%2Fh%2F1%2Fproxy/t/x//evil"
    assert cut(encoded, "/node/h/1/proxy/t/x//evil") == ("/node/h/1/proxy/t/x//evil", encoded)
