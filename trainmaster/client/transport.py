"""HTTP to one master: one kept-alive connection, JSON both ways, streams of lines.

`http.client` and not a richer library: importing one costs more than all the requests of a typical command.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainmaster.client.errors import ClientError, MasterUnreachable, api_error

Json = dict[str, Any]
TIMEOUT = 60.0  # seconds without a byte
RETRIES = 4  # for a master that is starting or a proxy that says 502, 503, 504
DEFAULT_PORT = 8080


def canonical_url(address: str) -> str:
    """The master's address in full, by Determined's rules: no scheme means http and port 8080."""
    if "://" not in address:
        host, sep, rest = address.partition("/")
        host = host if ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"
        address = f"http://{host}{sep}{rest}"
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientError(f"{address!r} is not the address of a master; write for example http://login1:8080.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


class Transport:
    """Not thread-safe: a client a thread."""

    def __init__(self, url: str, token: str | None = None, *, certificate: str | None = None) -> None:
        self.url = canonical_url(url)
        self.token = token
        self._certificate = certificate  # a CA file, or "noverify"
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
        """One call. Raises MasterUnreachable or an APIError."""
        for attempt in range(RETRIES + 1):
            last = attempt == RETRIES or not retry
            try:
                response = self._send(method, path, query, body)
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if last or (
                    method != "GET" and not isinstance(error, ConnectionRefusedError | http.client.RemoteDisconnected)
                ):
                    raise self._unreachable(error) from None
            else:
                if response.status not in (502, 503, 504) or last:
                    return _answer(response.status, content)
            time.sleep(0.25 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def lines(self, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[Json]:
        """The messages of a stream as they come. Raises MasterUnreachable or an APIError."""
        try:
            response = self._send("GET", path, query, None)
            if response.status != 200:
                raise api_error(response.status, _parsed(response.read()))
            for line in response:
                message = json.loads(line)
                if "error" in message:
                    raise api_error(
                        int(message["error"].get("http_code", 500)),
                        {"message": message["error"].get("message")},
                    )
                yield message["result"]
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            self.close()  # a stream that was not read to its end leaves the connection unusable

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        target = urlsplit(self.url).path + path
        if query:
            target += "?" + urlencode({k: _plain(v) for k, v in query.items() if v is not None}, doseq=True)
        reused = self._connection is not None
        connection = self._connection or self._connect()
        try:
            connection.request(method, target, body=data, headers=headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not reused:
                raise
            # The master closed an idle connection: nothing of this request was taken.
            self.close()
            connection = self._connect()
            connection.request(method, target, body=data, headers=headers)
            return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=None if self._certificate == "noverify" else self._certificate)
            if self._certificate == "noverify":
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT)
        return self._connection

    def _unreachable(self, error: Exception) -> MasterUnreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return MasterUnreachable(
            f"The master at {self.url} does not answer ({reason}). Is it running, and is the address right? "
            "Set it with -m or DET_MASTER."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _answer(status: int, content: bytes) -> Json:
    body = _parsed(content)
    if status >= 400:
        raise api_error(status, body)
    return body if isinstance(body, dict) else {}


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return {"message": content[:200].decode(errors="replace")}
