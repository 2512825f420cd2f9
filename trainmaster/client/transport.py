"""HTTP client for one master: one kept-alive connection, JSON requests and answers, streams of lines.

It uses `http.client`, as importing a richer library takes longer than all the requests of a typical command.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainmaster.client.errors import ClientError, HostNotFound, MasterUnreachable, NotLoggedIn, NotTrusted, api_error

Json = dict[str, Any]
TIMEOUT = 60.0  # seconds without a byte of an answer
STREAM_TIMEOUT = 600.0  # seconds without a line: a training may print nothing for a long time
PAUSES = (0.25, 0.5, 1.0)  # seconds before each retry, while a master starts or a proxy answers 502 to 504
DEFAULT_PORT = 8080
NOT_READY = (502, 503, 504)


@dataclass(frozen=True)
class Streamed:
    """A JSON body of `length` bytes that is produced while it is sent; each attempt calls `pieces` again."""

    length: int
    pieces: Callable[[], Iterator[bytes]]


def canonical_url(address: str) -> str:
    """Return the master's address in full, by Determined's rules: no scheme means http and port 8080. Raises
    ClientError."""
    text = address.strip()
    default = {"https": 443, "http": 80}.get(text.lower().partition("://")[0], DEFAULT_PORT)
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or default
    except ValueError:  # a port that is not a number, a bracket that is not closed
        raise _not_an_address(address) from None
    extra = parts.username or parts.password or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise _not_an_address(address)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def _not_an_address(address: str) -> ClientError:
    return ClientError(f"{address!r} is not the address of a master; write for example http://login1:8080.")


class Content:
    """A file that is being received from the master."""

    def __init__(self, response: http.client.HTTPResponse, broken: Callable[[Exception], MasterUnreachable]) -> None:
        self._response, self._broken = response, broken

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; all for -1. Raises MasterUnreachable when the connection breaks."""
        try:
            return self._response.read(None if size < 0 else size)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None


class Transport:
    """Connection to one master. Not thread-safe: use one per thread.

    Args:
        url: The address as users write it; `canonical_url` completes it.
        token: Sent with each call; None sends none.
        certificate: A file of CA certificates to trust, or "noverify"; None trusts the system's.
        renew: Returns a new token when the master refuses the present one; called at most once.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        certificate: str | None = None,
        renew: Callable[[], str] | None = None,
    ) -> None:
        self.url = canonical_url(url)
        self.token = token
        self.renew = renew
        self._certificate = certificate
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        retry: bool = True,
    ) -> Json:
        """Make a call, and repeat it while the master does not answer; `retry=False` is for calls that must not be made
        twice.

        Raises MasterUnreachable or an APIError.
        """
        if not retry:
            # When the master closes an idle connection, it is unknown whether it has taken the request.
            self.close()
        try:
            return self._attempts(method, path, query, body, PAUSES if retry else ())
        except NotLoggedIn:
            if not self._renewed():
                raise
            return self._attempts(method, path, query, body, PAUSES if retry else ())

    def lines(self, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[Json]:
        """Yield the messages of a stream as they arrive. Raises MasterUnreachable or an APIError."""
        try:
            response = self._open_stream(path, query)
            for line in _lines(response):
                message = json.loads(line)
                if "error" in message:
                    error = message["error"]
                    status, said = int(error.get("http_code", 500)), {"message": error.get("message")}
                    raise (
                        self._not_ready(status, json.dumps(said).encode())
                        if status in NOT_READY
                        else api_error(status, said)
                    )
                yield message["result"]
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self.close()  # a stream that is not read to its end leaves the connection unusable

    @contextmanager
    def content(self, path: str, *, accept: str) -> Iterator[Content]:
        """Return an answer other than JSON, to be read as it arrives. Raises MasterUnreachable or an APIError."""
        try:
            response = self._open_stream(path, None, accept=accept)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        try:
            yield Content(response, self._unreachable)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        if hasattr(self, "_connection"):  # absent if __init__ refused the address
            self.close()

    def _open_stream(
        self, path: str, query: Mapping[str, Any] | None, accept: str = "application/json"
    ) -> http.client.HTTPResponse:
        for attempt in (1, 2):
            response = self._send("GET", path, query, None, accept)
            if response.status == 200:
                if self._connection is not None and self._connection.sock is not None:
                    self._connection.sock.settimeout(STREAM_TIMEOUT)
                return response
            content = response.read()
            if response.status in NOT_READY:
                raise self._not_ready(response.status, content)
            try:
                _answer(response.status, content)
            except NotLoggedIn:
                if attempt == 2 or not self._renewed():
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _renewed(self) -> bool:
        if self.renew is None:
            return False
        renew, self.renew = self.renew, None  # once: renewing again would not help a new token that is refused
        self.token = None
        self.token = renew()
        return True

    def _attempts(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, pauses: tuple[float, ...]
    ) -> Json:
        for pause in (*pauses, None):
            try:
                response = self._send(method, path, query, body)
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if pause is None or not _may_repeat(error):
                    raise self._unreachable(error) from None
            else:
                if response.status not in NOT_READY:
                    return _answer(response.status, content)
                if pause is None:
                    raise self._not_ready(response.status, content)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        accept: str = "application/json",
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if isinstance(body, Streamed):
            headers["Content-Length"] = str(body.length)
        data = None if body is None or isinstance(body, Streamed) else json.dumps(body).encode()
        target = urlsplit(self.url).path + path
        if query:
            target += "?" + urlencode({k: _plain(v) for k, v in query.items() if v is not None}, doseq=True)
        reused = self._connection is not None
        connection = self._connection or self._connect()

        def sent(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
            connection.request(method, target, body.pieces() if isinstance(body, Streamed) else data, headers)
            return connection.getresponse()

        try:
            return sent(connection)
        except ClientError:  # raised by the body: half of the request has been sent
            self.close()
            raise
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not reused:
                raise
            # The master closed an idle connection: it has not taken this request.
            self.close()
            return sent(self._connect())

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            from trainmaster.client.tls import HttpsConnection

            self._connection = HttpsConnection(self.url, self._certificate, TIMEOUT)
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT)
        return self._connection

    def _unreachable(self, error: Exception) -> MasterUnreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return NotTrusted(
                f"The certificate of the master at {self.url} is not trusted ({error.verify_message}). "
                "Set DET_MASTER_CERT_FILE to the file with its authority's certificate."
            )
        if isinstance(error, http.client.BadStatusLine | ConnectionResetError) and self.url.startswith("http:"):
            return MasterUnreachable(
                f"The master at {self.url} ends the connection without an answer. If it speaks TLS, write "
                f"https{self.url.removeprefix('http')}; set the address with -m or DET_MASTER."
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        kind = HostNotFound if isinstance(error, socket.gaierror) else MasterUnreachable
        return kind(
            f"The master at {self.url} does not answer ({reason}). Is it running, and is the address right? "
            "Set it with -m or DET_MASTER."
        )

    def _not_ready(self, status: int, content: bytes) -> MasterUnreachable:
        body = _parsed(content)
        if isinstance(body, dict) and body.get("message"):
            return MasterUnreachable(str(body["message"]))
        reason = http.client.responses.get(status, "")
        return MasterUnreachable(f"The master at {self.url} is not ready ({status} {reason}). Try again in a moment.")


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield whole lines as they arrive. Raises IncompleteRead when the stream breaks.

    `HTTPResponse.readline` mistakes a broken stream for its end (CPython 3.11 to 3.13), `read1` does not.
    """
    rest = b""
    while piece := response.read1(65536):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest or response.length:
        raise http.client.IncompleteRead(rest, response.length)


def _may_repeat(error: Exception) -> bool:
    """Whether to try again: not if the next attempt would fail in the same way, and not after a timeout."""
    return not isinstance(error, socket.gaierror | ssl.SSLError | TimeoutError)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _answer(status: int, content: bytes) -> Json:
    body = _parsed(content)
    if status >= 400:
        raise api_error(status, body)
    if isinstance(body, dict):
        return body
    raise api_error(
        status, "The server that answered is not a master. Is the address right? Set it with -m or DET_MASTER."
    )


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return content[:200].decode(errors="replace").rstrip("\ufffd")
