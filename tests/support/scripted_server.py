"""A real HTTP server whose answers a test sets, as a master cannot be made to fail in a chosen way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """`close`: close the connection instead of answering. `length`: the Content-Length to send."""

    status: int = 200
    body: bytes = b"{}"
    close: bool = False
    length: int | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    token: str | None
    body: bytes


@dataclass
class Scripted:
    url: str
    requests: list[Request] = field(default_factory=list)
    server: ThreadingHTTPServer | None = None


@contextmanager
def serving(answers: Sequence[Answer], port: int = 0) -> Iterator[Scripted]:
    """Give each request the next answer; the last one stays."""
    remaining = list(answers)
    scripted = Scripted("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            scripted.requests.append(Request(self.command, self.path, self.headers.get("Authorization"), body))
            answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if answer.close:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
            self.end_headers()
            self.wfile.write(answer.body)
            if answer.length is not None:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    scripted.url, scripted.server = f"http://127.0.0.1:{server.server_port}", server
    try:
        yield scripted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
