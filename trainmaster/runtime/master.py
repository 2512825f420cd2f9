"""HTTP client of the master's API for jobs: JSON over keep-alive connections, one for each thread."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, Mapping, Optional, TypeVar

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.connection import Answer, Closed, Connection
from trainmaster.runtime.errors import CallFailed, CallRejected, ConnectionRefused, MasterUnreachable
from trainmaster.runtime.url import split_url
from trainmaster.runtime.url_file import read_url

T = TypeVar("T")

_NOT_NOW = frozenset({408, 425, 429})


class MasterCalls:
    """Calls the master. Safe to use from several threads.

    `url_file`, when given, names a file whose first line is the current URL, and `url_owner` the account that writes
    it (url_file.read_url); it is read again whenever the master cannot be reached, so that a master that moved is
    found. Proxies in the environment are never used: the master is inside the cluster. TLS is checked against
    `DET_MASTER_CERT_FILE` (a PEM file, or `noverify`) for the name `DET_MASTER_CERT_NAME` where these are set.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        url_file: Optional[str] = None,
        url_owner: Optional[int] = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._url_file, self._url_owner = url_file, url_owner
        self._token = token
        self._cert_file = environ.get("DET_MASTER_CERT_FILE")
        self._cert_name = environ.get("DET_MASTER_CERT_NAME")
        self._local = threading.local()
        self.url = url.rstrip("/")
        self.read_url_file()

    @property
    def arguments(self) -> Dict[str, Any]:
        """What makes another one in another process: `url`, `token`, `url_file` and `url_owner`."""
        return {"url": self.url, "token": self._token, "url_file": self._url_file, "url_owner": self._url_owner}

    def read_url_file(self) -> None:
        """Read the URL file again, if there is one. The old URL stays when the file has none that can be trusted."""
        if self._url_file is not None:
            self.url = read_url(self._url_file, self._url_owner) or self.url

    def call(self, method: str, path: str, body: Any = None, *, timeout: float = 30.0) -> Any:
        """Make one call. `timeout` (seconds) is for each wait on the network. Returns the parsed JSON answer.

        A kept connection that the other side had closed is replaced once; all calls of the in-job protocol can be
        repeated. Raises CallFailed or CallRejected.
        """
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode("utf-8")
        content = self._request(method, path, payload, timeout)
        try:
            return json.loads(content.decode("utf-8")) if content.strip() else {}
        except ValueError:
            raise MasterUnreachable("%s answered something that is not JSON" % self.url) from None

    def call_with_retry(
        self, method: str, path: str, body: Any = None, *, patience: float, timeout: float = 30.0
    ) -> Any:
        """Make one call, again while the master is away, for at most `patience` seconds."""
        return _with_retry(lambda: self.call(method, path, body, timeout=timeout), patience)

    def fetch(self, path: str, *, patience: float, timeout: float) -> bytes:
        """Download what lies at `path`, with retries like `call_with_retry`."""
        return _with_retry(lambda: self._request("GET", path, None, timeout), patience)

    def download(self, path: str, file: BinaryIO, *, patience: float, timeout: float) -> None:
        """Write what lies at `path` into a file, however large it is, with retries like `call_with_retry`."""

        def once() -> bytes:
            file.seek(0)
            file.truncate()
            return self._request("GET", path, None, timeout, file)

        _with_retry(once, patience)

    def _request(
        self, method: str, path: str, payload: Optional[bytes], timeout: float, into: Optional[BinaryIO] = None
    ) -> bytes:
        url = self.url
        try:
            answer = self._exchange(url, method, path, payload, timeout, into)
        except ConnectionRefusedError:
            self.read_url_file()
            raise ConnectionRefused("no process listens at %s" % url) from None
        except OSError as error:
            self.read_url_file()
            raise MasterUnreachable(
                "the master at %s cannot be reached: %s" % (url, error or type(error).__name__)
            ) from None
        if 200 <= answer.status < 300:
            return answer.body
        message = _message(answer.body)
        if answer.status >= 500 or answer.status in _NOT_NOW:
            self.read_url_file()
            raise MasterUnreachable("%s answered %d: %s" % (url, answer.status, message), answer.retry_after)
        raise CallRejected(answer.status, message)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _exchange(
        self, url: str, method: str, path: str, payload: Optional[bytes], timeout: float, into: Optional[BinaryIO]
    ) -> Answer:
        kept = getattr(self._local, "connection", None) is not None and self._local.url == url
        try:
            return self._once(url, method, path, payload, timeout, into)
        except (Closed, BrokenPipeError, ConnectionResetError):
            self.close()
            if not kept:
                raise
        except BaseException:
            # After an interrupted exchange the next answer on this connection would be the old one.
            self.close()
            raise
        if into is not None:
            into.seek(0)
            into.truncate()
        try:
            return self._once(url, method, path, payload, timeout, into)
        except BaseException:
            self.close()
            raise

    def _once(
        self, url: str, method: str, path: str, payload: Optional[bytes], timeout: float, into: Optional[BinaryIO]
    ) -> Answer:
        connection = self._connection(url, timeout)
        headers: Dict[str, str] = {"Authorization": "Bearer " + self._token, "Accept": "application/json"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        answer = connection.request(method, split_url(url).path + path, headers, payload, timeout, into)
        if not answer.kept:
            self.close()
        return answer

    def _connection(self, url: str, timeout: float) -> Connection:
        connection: Optional[Connection] = getattr(self._local, "connection", None)
        if connection is not None and self._local.url == url:
            return connection
        self.close()
        try:
            parts = split_url(url)
        except ValueError as error:
            raise OSError(str(error)) from None
        wrap = self._wrap(parts.host) if parts.scheme == "https" else None
        connection = Connection(parts.host, parts.port, timeout, wrap)
        self._local.connection, self._local.url = connection, url
        return connection

    def _wrap(self, host: str) -> Callable[[socket.socket], Any]:
        import ssl  # absent from some minimal Pythons, and needed only here

        if self._cert_file and self._cert_file.lower() == "noverify":
            # The administrator's explicit choice, in the words of the reference client.
            context = ssl._create_unverified_context()  # noqa: S323
        else:
            context = ssl.create_default_context(cafile=self._cert_file or None)

        def wrap(plain: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(plain, server_hostname=self._cert_name or host)

        return wrap


def _with_retry(ask: Callable[[], T], patience: float) -> T:
    """Call `ask` until the master answers, for at most `patience` seconds."""
    deadline = time.monotonic() + patience
    backoff = Backoff()
    while True:
        try:
            return ask()
        except CallFailed as error:
            wait = backoff.next(error.retry_after)
            if time.monotonic() + wait > deadline:
                raise
            time.sleep(wait)


def _message(answer: bytes) -> str:
    """Extract the sentence of an error answer: FastAPI's `detail`, Determined's `error.error`, or the start of the
    text."""
    text = answer[:2000].decode("utf-8", "replace").rstrip("\ufffd")
    try:
        parsed = json.loads(answer.decode("utf-8"))
    except ValueError:
        return text[:300].strip() or "no explanation"
    if isinstance(parsed, dict):
        error = parsed.get("error")
        if isinstance(error, dict):
            error = error.get("error") or error.get("reason")
        message = error or parsed.get("detail") or parsed.get("message")
        if message:
            return str(message)[:300]
    return text[:300]
