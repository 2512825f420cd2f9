"""HTTP client of the agent: all its calls to the master. Nothing connects to an agent."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from typing import IO
from urllib.parse import quote, urlencode, urlsplit

from pydantic import ValidationError

from trainmaster.agent_protocol.messages import AgentReport, Orders

DEADLINE = 60.0  # seconds without a byte of an answer
WAIT = 25.0  # seconds of a long poll
MAX_ANSWER = 64 * 2**20  # bytes


class MasterUnavailable(Exception):
    """No master answers, or it cannot answer now; try again later."""


class MustLeave(Exception):
    """The master rejects this agent; the message says why and what to do."""


class NotEnrolled(MustLeave):
    """The master does not know the agent's secret: it lost it, or an administrator revoked the agent."""


class NotGiven(Exception):
    """The master refuses one transfer: a job's files, or what a container left."""


class MasterLink:
    """The calls of one agent. Thread-safe: each call has its own connection."""

    def __init__(self, url: str, agent_id: str, secret: str, certificate: str | None = None) -> None:
        """`url`: with scheme, host and port. `secret`: the agent's own; empty before it has enrolled. `certificate`:
        file of CA certificates; None trusts the system's."""
        self.url = url
        self._parts = urlsplit(url)
        self._base = f"{self._parts.path.rstrip('/')}/api/x1/agents/{quote(agent_id)}"
        self.secret = secret
        self._certificate = certificate
        self._waiting: socket.socket | None = None

    def enrol(self, key: str) -> str:
        """Exchange the enrolment key for a secret of this agent, and use it from now on. Raises MasterUnavailable,
        MustLeave."""
        try:
            with self._call("POST", "/enrol", b"", {"Authorization": f"Bearer {key}"}) as answer:
                content = answer.read(MAX_ANSWER)
        except NotEnrolled as refusal:
            raise MustLeave(str(refusal)) from None
        try:
            self.secret = str(json.loads(content)["secret"])
        except (ValueError, KeyError, TypeError):
            raise MasterUnavailable(
                "the server at that address is not a trainmaster master; check the address"
            ) from None
        return self.secret

    def sync(self, report: AgentReport) -> Orders:
        """Send the report; return the orders. Raises MasterUnavailable, MustLeave."""
        body = report.model_dump_json().encode()
        with self._call("POST", "/sync", body, {"Content-Type": "application/json"}) as answer:
            return _orders(answer.read(MAX_ANSWER))

    def wait(self, known: str) -> Orders:
        """Return the orders as soon as they differ from revision `known`, at the latest after WAIT seconds.
        `stop_waiting` ends the wait. Raises MasterUnavailable, MustLeave."""
        with self._call("GET", f"/orders?known={quote(known)}&wait={WAIT:g}", waiting=True) as answer:
            return _orders(answer.read(MAX_ANSWER))

    def stop_waiting(self) -> None:
        """End a `wait` that is under way in another thread."""
        if (held := self._waiting) is not None:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def files(self, token: str, without: Sequence[str] = ()) -> Iterator[IO[bytes]]:
        """Download the tar of a job's files, but not those called `without`. Raises MasterUnavailable, MustLeave,
        NotGiven."""
        query = urlencode([("without", name) for name in without])
        with self._call("GET", f"/jobs/{quote(token)}/files" + (f"?{query}" if query else "")) as answer:
            yield answer

    def hand_in(self, token: str, node_rank: int, pieces: Iterable[bytes]) -> None:
        """Upload what a container left. Raises MasterUnavailable, MustLeave, NotGiven."""
        path = f"/jobs/{quote(token)}/remains?node_rank={node_rank}"
        with self._call("PUT", path, pieces, {"Content-Type": "application/x-tar"}) as answer:
            answer.read(MAX_ANSWER)

    @contextlib.contextmanager
    def _call(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
        *,
        waiting: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if waiting:
                self._waiting = connection.sock
            connection.request(
                method,
                self._base + path,
                body=body,
                headers={"Authorization": f"Bearer {self.secret}", **(headers or {})},
                encode_chunked=not isinstance(body, bytes | None),
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refusal(self.url, answer.status, answer.read(MAX_ANSWER))
            yield answer
        except ssl.SSLCertVerificationError as error:
            raise MustLeave(
                f"The certificate of the master at {self.url} is not trusted ({error.verify_message}); name the file "
                "of its authority with --certificate."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise MasterUnavailable(f"the master at {self.url} does not answer ({reason})") from None
        finally:
            self._waiting = None if waiting else self._waiting
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._certificate)
            return http.client.HTTPSConnection(host, port, timeout=DEADLINE, context=context)
        return http.client.HTTPConnection(host, port, timeout=DEADLINE)


def _orders(content: bytes) -> Orders:
    try:
        return Orders.model_validate_json(content)
    except ValidationError:
        raise MasterUnavailable("the server at that address is not a trainmaster master; check the address") from None


def _refusal(url: str, status: int, content: bytes) -> Exception:
    try:
        message = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError):
        message = content[:200].decode(errors="replace").rstrip("\ufffd")
    if status == 401:
        return NotEnrolled(f"The master at {url} does not accept this agent: {message}")
    if status == 403:
        return MustLeave(f"The master at {url} does not accept this agent: {message}")
    if status == 409:
        return MustLeave(str(message))
    if status in (400, 404, 413, 422):
        return NotGiven(str(message))
    return MasterUnavailable(f"the master at {url} answers with status {status}: {message}")
