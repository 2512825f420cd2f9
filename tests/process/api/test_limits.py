"""A request that is too large is answered with 413 and a sentence, however it is sent, and changes nothing."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.api.rows import changes, written

DEADLINE = 60.0  # seconds
PIECE = b"x" * 2**20
TARGETS = [
    ("POST", "/api/v1/experiments"),
    ("POST", "/api/v1/auth/login"),
    ("PATCH", "/api/v1/users/1"),
    ("PUT", "/api/v1/experiments/by-external-id/x"),
    ("DELETE", "/api/v1/templates/x"),
    ("GET", "/api/v1/experiments"),
    ("POST", "/api/v1/users/1/password"),
    ("POST", "/no/such/thing"),
]


class Raw:
    """A connection on which a test writes what it wants to, as slowly as it wants to."""

    def __init__(self, api: Api) -> None:
        parts = urlsplit(api.url)
        assert parts.hostname
        assert parts.port
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)
        self._token = api.token

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def head(self, method: str, path: str, *lines: str) -> None:
        fields = ("Host: master", f"Authorization: Bearer {self._token}", "Content-Type: application/json", *lines)
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""]).encode())

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the next answer."""
        with self._socket.makefile("rb") as file:
            status = int(file.readline().split()[1])
            headers = {}
            while line := file.readline().strip():
                key, _, value = line.decode().partition(":")
                headers[key.lower()] = value.strip()
            return status, headers, file.read(int(headers.get("content-length", 0)))

    def closed(self) -> bool:
        return self._socket.recv(1) == b""


def refused(found: tuple[int, dict[str, str], bytes]) -> None:
    status, headers, content = found
    assert status == 413
    assert headers["connection"] == "close"
    error = json.loads(content)["error"]
    assert (error["code"], error["reason"]) == (8, "ResourceExhausted")
    assert "limits.request" in error["error"]
    assert "MB" in error["error"]


@pytest.mark.parametrize(("method", "path"), TARGETS, ids=lambda part: part.rpartition("/")[2])
def test_too_large_content_length_is_refused_before_body_is_sent(
    user: Api, engine: Engine, method: str, path: str
) -> None:
    before = written(engine)
    with Raw(user) as raw:
        raw.head(method, path, f"Content-Length: {10 * 2**30}")
        refused(raw.answer())
    assert not changes(before, written(engine))


def test_a_client_that_asks_first_need_not_send_it(user: Api) -> None:
    with Raw(user) as raw:
        raw.head("POST", "/api/v1/experiments", f"Content-Length: {10 * 2**30}", "Expect: 100-continue")
        refused(raw.answer())
        assert raw.closed()


def test_client_that_sends_all_before_reading_gets_refusal(user: Api) -> None:
    with Raw(user) as raw:
        raw.head("POST", "/api/v1/experiments", f"Content-Length: {170 * 2**20}")
        for _ in range(170):
            raw.send(PIECE)
        refused(raw.answer())
        assert raw.closed()


@pytest.mark.parametrize("path", ["/api/v1/experiments", "/api/v1/users/1/password"])
def test_body_without_length_is_refused_once_too_large(user: Api, engine: Engine, path: str) -> None:
    before = written(engine)
    with Raw(user) as raw:
        raw.head("POST", path, "Transfer-Encoding: chunked")
        for _ in range(170):
            raw.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
        refused(raw.answer())  # before the last piece
        raw.send(b"0\r\n\r\n")
        assert raw.closed()
    assert not changes(before, written(engine))


def test_pieces_of_a_body_that_is_small_enough_are_taken(user: Api) -> None:
    with Raw(user) as raw:
        raw.head("POST", "/api/v1/preview-hp-search", "Transfer-Encoding: chunked")
        for piece in (b'{"config": {}', b', "seed": 1}'):
            raw.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        raw.send(b"0\r\n\r\n")
        status, _, content = raw.answer()
        assert status == 400
        assert "searcher" in json.loads(content)["error"]["error"]


# -- who sends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "nonsense"])
def test_unauthenticated_request_is_refused_before_body_is_read(anonymous: Api, engine: Engine, token: str) -> None:
    before = written(engine)
    with Raw(Api(anonymous.url, token)) as raw:
        raw.head("POST", "/api/v1/experiments", f"Content-Length: {100 * 2**20}")
        status, headers, content = raw.answer()  # not a byte of it was sent
        assert (status, headers["connection"]) == (401, "close")
        assert json.loads(content)["error"]["reason"] == "Unauthenticated"
    with Raw(Api(anonymous.url, token)) as raw:
        raw.head("POST", "/api/v1/auth/login", "Transfer-Encoding: chunked")
        raw.send(b"%x\r\n" % len(PIECE) + PIECE + b"\r\n")  # its end never comes
        status, headers, _ = raw.answer()
        assert (status, headers["connection"]) == (401, "close")
    with Raw(Api(anonymous.url, token)) as raw:
        raw.head("POST", "/api/v1/experiments", f"Content-Length: {100 * 2**20}", "Expect: 100-continue")
        assert raw.answer()[0] == 401
        assert raw.closed()
    assert not changes(before, written(engine))


def test_report_from_unknown_job_is_unauthenticated(anonymous: Api) -> None:
    for way in (f"Content-Length: {2**19}", "Transfer-Encoding: chunked"):
        with Raw(Api(anonymous.url, "alloc:nobody.1:0")) as raw:
            raw.head("POST", "/api/x1/allocations/nobody.1/reports", way)
            if "chunked" in way:
                raw.send(b"%x\r\n" % len(PIECE) + PIECE + b"\r\n")  # its end never comes
            status, headers, _ = raw.answer()
            assert (status, headers["connection"]) == (401, "close")


def test_authenticated_clients_may_send_large_bodies(user: Api, job: Job) -> None:
    assert user.post("/api/v1/models", {"name": uuid.uuid4().hex, "notes": "x" * 2**20}).status == 200
    line = {"t": 0.0, "stdtype": "stdout", "level": "INFO", "rank": 0, "line": "x" * 1000}
    assert job.send([line] * 200, stream="log-0").status == 200


def test_large_requests_are_answered_however_many_come_at_once(user: Api, engine: Engine) -> None:
    """More than are worked on at once; one of them is refused, one breaks off, and nobody waits for either."""
    body = {"name": "x" * 9 * 2**20}  # too long for a name
    with Raw(user) as broken:
        broken.head("POST", "/api/v1/experiments", f"Content-Length: {20 * 2**20}")
        for _ in range(10):
            broken.send(PIECE)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(user.post("/api/v1/workspaces", body).status))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [400] * 5
    assert user.post("/api/v1/workspaces", body).status == 400
