"""A proxy in front of an object store that misbehaves as a test says.

It passes the request's own `Host` on, so that signatures hold.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

BLOCK = 1 << 16


@dataclass(frozen=True)
class Fault:
    """What happens to one request: an answer of the proxy's own, or a connection that is cut after some bytes of the
    body, or one that is slow."""

    status: int = 0
    code: str = ""  # of the XML that S3 answers with
    cut_after: int = -1  # bytes of the request's body, or of the answer's where the request has none
    pause: float = 0.0  # seconds for each 64 KiB


@dataclass
class Faulty:
    """The running proxy. `decide` is called with the method and the path of each request."""

    url: str
    decide: Callable[[str, str], Fault | None] = lambda _method, _path: None
    requests: list[tuple[str, str, int]] = field(default_factory=list)  # method, path, bytes of the body that arrived

    def sent(self) -> int:
        """Bytes of all bodies that reached the store."""
        return sum(size for method, _, size in self.requests if method == "PUT")


@contextmanager
def faulty(target: str) -> Iterator[Faulty]:
    """Run a proxy in front of the store at this address."""
    goal = urlsplit(target)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            fault = proxy.decide(self.command, self.path)
            length = int(self.headers.get("Content-Length") or 0)
            if fault is not None and fault.status:
                self.rfile.read(length)
                self._answer(fault)
                return
            store = http.client.HTTPConnection(str(goal.hostname), goal.port, timeout=60)
            try:
                store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    store.putheader(name, value)
                store.endheaders()
                done = 0
                while done < length:
                    block = self.rfile.read(min(BLOCK, length - done))
                    if not block:
                        return
                    done += len(block)
                    store.send(block)
                    if fault is not None and 0 <= fault.cut_after <= done:
                        self._cut()
                        return
                    time.sleep(fault.pause if fault is not None else 0)
                with lock:
                    proxy.requests.append((self.command, self.path, done))
                answer = store.getresponse()
                self.send_response(answer.status)
                chunked = answer.getheader("Content-Length") is None and self.command != "HEAD"
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding"):
                        self.send_header(name, value)
                if chunked:
                    self.send_header("Connection", "close")
                    self.close_connection = True
                self.end_headers()
                done = 0
                while self.command != "HEAD" and (block := answer.read(BLOCK)):
                    self.wfile.write(block)
                    done += len(block)
                    if fault is not None and not length and 0 <= fault.cut_after <= done:
                        self._cut()
                        return
                    time.sleep(fault.pause if fault is not None else 0)
            except (OSError, http.client.HTTPException):
                self._cut()
            finally:
                store.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        def _answer(self, fault: Fault) -> None:
            body = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>m</Message></Error>".encode()
            self.send_response(fault.status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _cut(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            return

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Faulty(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
