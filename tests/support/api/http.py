"""Plain HTTP client for tests of the API: `http.client`, without our own client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
TIMEOUT = 90.0  # seconds; more than the master's longest poll


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> Json:
        """The envelope's inside; fails when the answer is not Determined's error envelope."""
        found: Json = self.json["error"]
        assert isinstance(found["code"], int)
        assert isinstance(found["reason"], str)
        assert found["error"]
        assert self.json.get("message", found["error"]) == found["error"]
        return found

    @property
    def sentence(self) -> str:
        return str(self.error["error"])


class Api:
    """Calls one master, with a new connection for each call, so that several threads may use it."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url, self.token = url, token

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = self._connect()
        try:
            self._send(connection, method, path, body, query, raw, headers)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Answer:
        return self.call("POST", path, {} if body is None else body)

    def lines(self, path: str, **query: Any) -> Iterator[Json]:
        """Yields the messages of a stream as they arrive."""
        connection = self._connect()
        try:
            self._send(connection, "GET", path, None, query, None, None)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                yield json.loads(line)["result"]
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None,
        raw: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        target = path if not query else f"{path}?{urlencode({k: _text(v) for k, v in query.items()}, doseq=True)}"
        connection.request(method, target, body=data, headers={**sent, **(headers or {})})


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
