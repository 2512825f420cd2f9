"""A receiver for webhooks: records requests, and answers with the statuses that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.master import wait_for


@dataclass(frozen=True)
class Heard:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Listener:
    url: str
    answers: list[int] = field(default_factory=list)  # statuses for the next calls; 200 when there are none left
    heard: list[Heard] = field(default_factory=list)

    def wait(self, count: int = 1) -> list[Heard]:
        """Wait for that many requests, and return all."""
        return wait_for(lambda: self.heard if len(self.heard) >= count else None, f"{count} messages to a webhook")

    def of(self, experiment: int) -> list[Heard]:
        """The requests about one experiment's end, as other tests' experiments end too."""
        told = [(heard, heard.json.get("event_data", {}).get("experiment", {})) for heard in self.heard]
        return [heard for heard, about in told if about.get("id") == experiment]

    def wait_of(self, experiment: int, count: int = 1) -> list[Heard]:
        """Wait for that many requests of `of`, and return them."""
        return wait_for(
            lambda: found if len(found := self.of(experiment)) >= count else None,
            f"{count} messages about experiment {experiment}",
        )


@contextmanager
def listening() -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = listener.answers.pop(0) if listener.answers else 200
            # Before the answer: whoever sees what the master makes of it finds it here.
            listener.heard.append(Heard(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener = Listener(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
