"""The HTTP connection to a master, kept alive between requests.

It uses `http.client`, as importing a richer library takes longer than all the requests of a typical command.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from trainmaster.client.errors import ClientError

TIMEOUT = 60.0  # seconds without a byte of an answer
STREAM_TIMEOUT = 600.0  # seconds without a line: a training may print nothing for a long time


@dataclass(frozen=True)
class Streamed:
    """A JSON body of `length` bytes that is produced while it is sent; each attempt calls `pieces` again."""

    length: int
    pieces: Callable[[], Iterator[bytes]]


Body = bytes | Streamed | None


class HttpConnection(Protocol):
    """A way to one master. Tests may pass another one to `Transport`."""

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: Body, *, stream: bool = False
    ) -> http.client.HTTPResponse:
        """Send a request; return its answer, of which nothing but the head has been read. The body of a `stream` may
        pause for STREAM_TIMEOUT. Raises OSError, HTTPException."""

    def close(self) -> None:
        """Close it; the next request opens a new one."""


class PersistentConnection:
    """One connection, opened when it is needed, and once more where the master closed it while it was idle."""

    def __init__(self, url: str, certificate: str | None) -> None:
        self._url, self._certificate = url, certificate
        self._open: http.client.HTTPConnection | None = None

    def send(
        self, method: str, target: str, headers: Mapping[str, str], body: Body, *, stream: bool = False
    ) -> http.client.HTTPResponse:
        answer = self._answer(method, target, headers, body)
        if stream and answer.status == 200 and self._open is not None and self._open.sock is not None:
            self._open.sock.settimeout(STREAM_TIMEOUT)
        return answer

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: Body) -> http.client.HTTPResponse:
        reused = self._open is not None
        try:
            return self._sent(self._open or self._connect(), method, target, headers, body)
        except ClientError:  # raised by the body: half of the request has been sent
            self.close()
            raise
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not reused:
                raise
            # The master closed an idle connection: it has not taken this request.
            self.close()
            return self._sent(self._connect(), method, target, headers, body)

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: Body
    ) -> http.client.HTTPResponse:
        connection.request(method, target, body.pieces() if isinstance(body, Streamed) else body, headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._url)
        if parts.scheme == "https":
            from trainmaster.client.tls import HttpsConnection

            self._open = HttpsConnection(self._url, self._certificate, TIMEOUT)
        else:
            self._open = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
        return self._open
