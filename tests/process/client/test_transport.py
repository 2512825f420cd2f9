"""The client's HTTP: retries, streams and errors."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.support.master import free_port
from tests.support.scripted_server import Answer, serving
from trainmaster.client.address import canonical_url
from trainmaster.client.connection import Body
from trainmaster.client.errors import APIError, ClientError, MasterUnreachable, NoSuchThing, NotAllowed, NotLoggedIn
from trainmaster.client.transport import Transport
from trainmaster.master.db.watchdog import DatabaseUnavailable
from trainmaster.master.http.error_envelope import stream_error

UNAVAILABLE = Answer(503, b'{"message": "The database does not answer now."}')
EXPIRED = Answer(401, b'{"error": {"code": 16, "reason": "Unauthenticated", "error": "The session has expired."}}')


@contextmanager
def transport(url: str, token: str | None = None, **options: object) -> Iterator[Transport]:
    made = Transport(url, token, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("localhost", "http://localhost:8080"),
        ("login1:9000", "http://login1:9000"),
        (" login1 ", "http://login1:8080"),
        ("http://login1", "http://login1:80"),
        ("https://login1", "https://login1:443"),
        ("https://login1:8443/", "https://login1:8443"),
        ("https://portal.site.org/det/", "https://portal.site.org:443/det"),
        ("login1/det", "http://login1:8080/det"),
        ("10.0.0.7", "http://10.0.0.7:8080"),
        ("[::1]", "http://[::1]:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("HTTP://Login1", "http://login1:80"),
    ],
)
def test_an_address_is_completed_by_determineds_rules(written: str, meant: str) -> None:
    assert canonical_url(written) == meant
    assert canonical_url(meant) == meant


@pytest.mark.parametrize(
    "written", ["", "http://", "host:abc", "ftp://login1", "http://[::1", "me:secret@login1", "h?q=1"]
)
def test_invalid_address_is_rejected_with_example(written: str) -> None:
    with pytest.raises(ClientError, match=r"is not the address of a master; write for example http://login1:8080"):
        canonical_url(written)


class Recorded:
    """A connection without a network: notes requests, and gives one answer."""

    def __init__(self, body: bytes) -> None:
        self.requests: list[tuple[str, str]] = []
        self._answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: Body, *, stream: bool = False
    ) -> HTTPResponse:
        self.requests.append((method, target))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(self._answer)
            answer = HTTPResponse(ours)
        answer.begin()
        return answer

    def close(self) -> None:
        pass


def test_a_connection_can_be_replaced() -> None:
    connection = Recorded(b'{"ok": true}')
    with transport("https://portal.site.org/det", connection=connection) as http:
        assert http.request("GET", "/x", query={"all": True, "none": None}) == {"ok": True}
    assert connection.requests == [("GET", "/det/x?all=true")]


def test_a_master_that_is_not_ready_is_asked_again() -> None:
    with serving([UNAVAILABLE, UNAVAILABLE, Answer(body=b'{"ok": true}')]) as server, transport(server.url) as http:
        assert http.request("GET", "/x") == {"ok": True}
        assert len(server.requests) == 3


def test_the_message_of_a_master_that_is_not_ready_is_kept() -> None:
    with serving([UNAVAILABLE]) as server, transport(server.url) as http:
        with pytest.raises(MasterUnreachable, match="The database does not answer now"):
            http.request("GET", "/x")
        assert len(server.requests) == 4


def test_a_proxys_error_page_is_not_shown() -> None:
    with serving([Answer(502, b"<html>Bad Gateway</html>")]) as server, transport(server.url) as http:
        with pytest.raises(MasterUnreachable, match=r"is not ready \(502 Bad Gateway\)") as caught:
            http.request("GET", "/x", retry=False)
        assert "html" not in str(caught.value)


def test_a_refused_connection_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with ExitStack() as until_the_end, transport(f"http://127.0.0.1:{port}") as http:
        pauses: list[float] = []

        def meanwhile(pause: float) -> None:
            """The master comes while the client pauses after its second attempt."""
            pauses.append(pause)
            if len(pauses) == 2:
                until_the_end.enter_context(serving([Answer(body=b'{"up": 1}')], port))

        monkeypatch.setattr("trainmaster.client.transport.time.sleep", meanwhile)
        assert http.request("GET", "/x") == {"up": 1}
        monkeypatch.undo()
        assert len(pauses) == 2


def test_unreachable_master_error_names_address_and_advice() -> None:
    port = free_port()
    with transport(f"http://127.0.0.1:{port}") as http, pytest.raises(MasterUnreachable) as caught:
        http.request("GET", "/x", retry=False)
    assert f"http://127.0.0.1:{port}" in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "DET_MASTER" in str(caught.value)


def test_request_without_retry_is_sent_once() -> None:
    with serving([Answer(), Answer(close=True)]) as server, transport(server.url) as http:
        http.request("GET", "/warm")  # the connection is kept, so that a hang-up looks like one that had idled
        with pytest.raises(MasterUnreachable):
            http.request("POST", "/create", body={}, retry=False)
        assert [r.path for r in server.requests] == ["/warm", "/create"]


def test_a_connection_that_the_master_closed_is_opened_again() -> None:
    with serving([Answer(), Answer(close=True), Answer(body=b'{"again": 1}')]) as server, transport(server.url) as http:
        http.request("GET", "/warm")
        assert http.request("GET", "/x") == {"again": 1}


@pytest.mark.parametrize(
    ("status", "kind"), [(400, APIError), (401, NotLoggedIn), (403, NotAllowed), (404, NoSuchThing), (500, APIError)]
)
def test_errors_have_their_class_and_the_masters_sentence(status: int, kind: type[APIError]) -> None:
    body = b'{"error": {"code": 3, "reason": "R", "error": "What is wrong.", "details": [{"path": ["a"]}]}}'
    with serving([Answer(status, body)]) as server, transport(server.url) as http:
        with pytest.raises(kind, match=r"^What is wrong\.$") as caught:
            http.request("GET", "/x")
        assert (caught.value.status, caught.value.details) == (status, [{"path": ["a"]}])


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"[1]", b"plain"])
def test_something_else_that_listens_there_is_no_master(body: bytes) -> None:
    with (
        serving([Answer(200, body)]) as server,
        transport(server.url) as http,
        pytest.raises(APIError, match="is not a master"),
    ):
        http.request("GET", "/x")


def test_an_expired_session_is_renewed_once() -> None:
    with (
        serving([EXPIRED, Answer(body=b'{"ok": 1}')]) as server,
        transport(server.url, "old", renew=lambda: "new") as http,
    ):
        assert http.request("GET", "/x") == {"ok": 1}
        assert [r.token for r in server.requests] == ["Bearer old", "Bearer new"]
    with serving([EXPIRED]) as server, transport(server.url, "old", renew=lambda: "new") as http:
        with pytest.raises(NotLoggedIn, match="has expired"):
            http.request("GET", "/x")
        assert len(server.requests) == 2


def test_an_expired_session_is_renewed_before_a_stream() -> None:
    stream = Answer(body=b'{"result": {"n": 1}}\n')
    with serving([EXPIRED, stream]) as server, transport(server.url, "old", renew=lambda: "new") as http:
        assert list(http.lines("/logs")) == [{"n": 1}]


def test_stream_raises_error_line_after_preceding_lines() -> None:
    body = b'{"result": {"n": 1}}\n{"error": {"http_code": 404, "message": "It is gone."}}\n'
    with serving([Answer(body=body)]) as server, transport(server.url) as http:
        lines = http.lines("/logs")
        assert next(lines) == {"n": 1}
        with pytest.raises(NoSuchThing, match="It is gone"):
            next(lines)


@pytest.mark.parametrize("cut", [b'{"result": {"n": 1}}\n{"resu', b'{"result": {"n": 1}}\n'])
def test_a_stream_that_breaks_off_is_not_taken_for_its_end(cut: bytes) -> None:
    with serving([Answer(body=cut, length=1000)]) as server, transport(server.url) as http:
        lines = http.lines("/logs")
        assert next(lines) == {"n": 1}
        with pytest.raises(MasterUnreachable):
            next(lines)


def test_queries_are_written_as_the_api_reads_them() -> None:
    with serving([Answer()]) as server, transport(f"{server.url}/proxy") as http:
        http.request("GET", "/x", query={"a": True, "b": None, "c": ["1", "2"], "d": 0, "e": "ä &"})
        assert server.requests[0].path == "/proxy/x?a=true&c=1&c=2&d=0&e=%C3%A4+%26"


def test_certificates(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with serving([Answer(body=b'{"ok": 1}')]) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        assert server.server is not None
        server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
        url = server.url.replace("http://", "https://")
        for trust in (str(certificate), "noverify"):
            with transport(url, certificate=trust) as http:
                assert http.request("GET", "/x") == {"ok": 1}
        with transport(url) as http, pytest.raises(MasterUnreachable, match=r"not trusted.*DET_MASTER_CERT_FILE"):
            http.request("GET", "/x")
        with transport(url, certificate="/nowhere.pem") as http, pytest.raises(ClientError, match="cannot be read"):
            http.request("GET", "/x")


def test_stream_ended_for_lack_of_database_raises_unreachable() -> None:
    """The master's own last line: a followed log goes on once the database answers again."""
    body = b'{"result": {"n": 1}}\n' + stream_error(DatabaseUnavailable("does not answer"))
    with serving([Answer(body=body)]) as server, transport(server.url) as http:
        lines = http.lines("/logs")
        assert next(lines) == {"n": 1}
        with pytest.raises(MasterUnreachable, match="The database does not answer now"):
            next(lines)
