"""The job's HTTP: what a server or a proxy in between may answer."""

from __future__ import annotations

import io
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.runtime.connection import Answer, BadAnswer, Closed, Connection
from trainmaster.runtime.errors import MasterUnreachable
from trainmaster.runtime.master import MasterCalls

JSON = b'{"a": 1}'
OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request on a connection with the next of `answers`, byte for byte, and then closes it."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection = self._listener.accept()[0]
        with connection, connection.makefile("rb") as lines:
            for answer in self._answers:
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    if not (line := lines.readline()):
                        return
                    request += line
                size = next((int(h[15:]) for h in request.split(b"\r\n") if h.startswith(b"Content-Length:")), 0)
                self.asked.append(request + lines.read(size))
                connection.sendall(answer)

    def close(self) -> None:
        self._thread.join(60)
        self._listener.close()


@pytest.fixture
def served() -> Iterator[dict[str, object]]:
    held: dict[str, object] = {}
    yield held
    for part in held.values():
        part.close()  # type: ignore[attr-defined]


def connect(served: dict[str, object], *answers: bytes) -> tuple[Connection, Server]:
    server = Server(*answers)
    connection = Connection("127.0.0.1", server.port, 60)
    served["connection"], served["server"] = connection, server
    return connection, server


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (OK + b"Content-Length: 8\r\n\r\n" + JSON, True),
        (OK + b"content-length:8\r\nConnection: Close\r\n\r\n" + JSON, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\n" + JSON, False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 8\r\n\r\n" + JSON, True),
        (OK + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5;x=y\r\n": 1}\r\n0\r\nTrailer: t\r\n\r\n', True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 8\r\n\r\n" + JSON, True),
        (OK + b"\r\n" + JSON, False),
    ],
    ids=["length", "closes", "1.0", "1.0 kept", "chunked", "early hints", "until the end"],
)
@pytest.mark.parametrize("file", [None, io.BytesIO()], ids=["", "into a file"])
def test_answers(served: dict[str, object], answer: bytes, kept: bool, file: io.BytesIO | None) -> None:
    connection, server = connect(served, answer)
    got = connection.request("POST", "/api", {"Accept": "application/json"}, b"{}", 60, file)
    assert (got.status, got.kept) == (200, kept)
    if file is None:
        assert got.body == JSON
    else:
        assert (got.body, file.getvalue()) == (b"", JSON)
        file.seek(0)
        file.truncate()
    assert server.asked == [
        b"POST /api HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n"
        b"Accept: application/json\r\nContent-Length: 2\r\n\r\n{}" % server.port
    ]


def test_what_a_refusal_says_goes_into_no_file(served: dict[str, object]) -> None:
    connection, _ = connect(served, b"HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n" + JSON)
    file = io.BytesIO()
    assert connection.request("GET", "/", {}, None, 60, file).body == JSON
    assert file.getvalue() == b""


def test_one_after_the_other(served: dict[str, object]) -> None:
    nothing = b"HTTP/1.1 204 No Content\r\n\r\n"
    connection, server = connect(served, OK + b"Content-Length: 8\r\n\r\n" + JSON, nothing)
    assert connection.request("GET", "/1", {}, None, 60).body == JSON
    assert connection.request("POST", "/2", {}, None, 60) == Answer(204, b"", True)
    assert b"Content-Length" not in server.asked[0]
    assert b"Content-Length: 0" in server.asked[1]
    with pytest.raises((Closed, ConnectionResetError, BrokenPipeError)):
        connection.request("GET", "/3", {}, None, 60)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "is not HTTP"),
        (OK + b"Content-Le", "breaks off in its headers"),
        (OK + b"Content-Length: 9\r\n\r\n" + JSON, "after 8 of 9 bytes"),
        (OK + b"Content-Length: -1\r\n\r\n", "no length"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "no length"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", "longer than it says"),
        (OK + b"A: b\r\n" * 300 + b"\r\n", "more than 200 headers"),
        (OK + b"A: " + b"b" * 70000 + b"\r\n\r\n", "breaks off in its headers"),
    ],
)
def test_answers_that_are_none(served: dict[str, object], answer: bytes, sentence: str) -> None:
    connection, _ = connect(served, answer)
    with pytest.raises(BadAnswer, match=sentence):
        connection.request("GET", "/", {}, None, 60)


def test_a_length_sets_nothing_aside(served: dict[str, object]) -> None:
    connection, _ = connect(served, OK + b"Content-Length: 99999999999999\r\n\r\n" + JSON)
    with pytest.raises(BadAnswer, match="after 8 of 99999999999999"):
        connection.request("GET", "/", {}, None, 60)


@pytest.mark.parametrize("token", ["a\r\nX: y", "a\nb", "ä"])
def test_a_header_is_one_line(served: dict[str, object], token: str) -> None:
    connection, server = connect(served)
    with pytest.raises(BadAnswer, match="may not hold"):
        connection.request("GET", "/", {"Authorization": token}, None, 60)
    connection.close()
    server.close()
    assert server.asked == []


def test_hanging_server_times_out(served: dict[str, object]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    served["listener"] = listener
    connection = Connection("127.0.0.1", listener.getsockname()[1], 60)
    served["connection"] = connection
    with pytest.raises(TimeoutError):
        connection.request("GET", "/", {}, None, 0.05)


def test_the_next_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(OK + b"Content-Length: 8\r\n\r\n" + JSON)
    unused = socket.create_server(("127.0.0.1", 0))
    nobody = unused.getsockname()
    unused.close()

    def addresses(*_: object, **__: object) -> list[object]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*kind, nobody), (*kind, ("127.0.0.1", server.port))]

    monkeypatch.setattr("socket.getaddrinfo", addresses)
    connection = Connection("a-name", server.port, 60)
    assert connection.request("GET", "/", {}, None, 60).body == JSON
    connection.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        Connection("a-name", server.port, 60)


def test_tls_is_checked(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=login1"]
    command += ["-addext", "subjectAltName=DNS:login1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def serve() -> None:
        for _ in range(4):
            try:
                connection = listener.accept()[0]
            except OSError:  # the other side did not like the certificate
                continue
            with connection, connection.makefile("rb") as lines:
                while lines.readline().strip():
                    continue
                connection.sendall(OK + b"Content-Length: 8\r\n\r\n" + JSON)

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    named = {"DET_MASTER_CERT_FILE": str(certificate), "DET_MASTER_CERT_NAME": "login1"}
    for environ in (named, {"DET_MASTER_CERT_FILE": "noverify"}):
        master = MasterCalls(url, "token", environ=environ)
        assert master.call("GET", "/", timeout=60) == {"a": 1}
        master.close()
    for environ in ({"DET_MASTER_CERT_FILE": str(certificate)}, {"DET_MASTER_CERT_NAME": "login1"}):
        with pytest.raises(MasterUnreachable, match="certificate verify failed"):
            MasterCalls(url, "token", environ=environ).call("GET", "/", timeout=60)
    thread.join(60)
    listener.close()
