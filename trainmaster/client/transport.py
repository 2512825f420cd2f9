"""Calls to one master: JSON requests and answers, streams of lines; repeats what a busy master did not answer."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainmaster.client.address import canonical_url
from trainmaster.client.connection import Body, HttpConnection, PersistentConnection, Streamed
from trainmaster.client.errors import NotLoggedIn, api_error
from trainmaster.client.wording import NOT_READY, answer_of, not_ready, unreachable

Json = dict[str, Any]
PAUSES = (0.25, 0.5, 1.0)  # seconds before each retry, while a master starts or a proxy answers 502 to 504


class Content:
    """A file that is being received from the master."""

    def __init__(self, response: http.client.HTTPResponse, url: str) -> None:
        self._response, self._url = response, url

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; all for -1. Raises MasterUnreachable when the connection breaks."""
        try:
            return self._response.read(None if size < 0 else size)
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self._url, error) from None


class Transport:
    """Calls to one master. Not thread-safe: use one per thread.

    Args:
        url: The address as users write it; `canonical_url` completes it.
        token: Sent with each call; None sends none.
        certificate: A file of CA certificates to trust, or "noverify"; None trusts the system's.
        renew: Returns a new token when the master refuses the present one; called at most once.
        connection: Carries the requests; None makes one to `url`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        certificate: str | None = None,
        renew: Callable[[], str] | None = None,
        connection: HttpConnection | None = None,
    ) -> None:
        self.url = canonical_url(url)
        self.token = token
        self.renew = renew
        self._connection = connection or PersistentConnection(self.url, certificate)

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
                    status, body = int(error.get("http_code", 500)), {"message": error.get("message")}
                    if status in NOT_READY:
                        raise not_ready(self.url, status, json.dumps(body).encode())
                    raise api_error(status, body)
                yield message["result"]
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.url, error) from None
        finally:
            self.close()  # a stream that is not read to its end leaves the connection unusable

    @contextmanager
    def content(self, path: str, *, accept: str) -> Iterator[Content]:
        """Return an answer other than JSON, to be read as it arrives. Raises MasterUnreachable or an APIError."""
        try:
            response = self._open_stream(path, None, accept=accept)
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.url, error) from None
        try:
            yield Content(response, self.url)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):  # absent if __init__ refused the address
            self.close()

    def _open_stream(
        self, path: str, query: Mapping[str, Any] | None, accept: str = "application/json"
    ) -> http.client.HTTPResponse:
        for attempt in (1, 2):
            response = self._send("GET", path, query, None, accept, stream=True)
            if response.status == 200:
                return response
            content = response.read()
            if response.status in NOT_READY:
                raise not_ready(self.url, response.status, content)
            try:
                answer_of(response.status, content)
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
                    raise unreachable(self.url, error) from None
            else:
                if response.status not in NOT_READY:
                    return answer_of(response.status, content)
                if pause is None:
                    raise not_ready(self.url, response.status, content)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        accept: str = "application/json",
        *,
        stream: bool = False,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if isinstance(body, Streamed):
            headers["Content-Length"] = str(body.length)
        target = urlsplit(self.url).path + path
        if query:
            target += "?" + urlencode({k: _plain(v) for k, v in query.items() if v is not None}, doseq=True)
        content: Body = body if body is None or isinstance(body, Streamed) else json.dumps(body).encode()
        return self._connection.send(method, target, headers, content, stream=stream)


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
