"""A master for tests of the runtime: the in-job protocol, served in this process.

It stores reports as the master does (records only in order, each once), and can refuse, disappear and return on the
same port, answer slowly, stop a trial early, and report that an allocation is gone.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainmaster.master.services.files.archives import listed

TOKEN = "tok-6f1c0ffee-secret"
_ALLOCATION = re.compile(
    r"/api/(?:x1|v1)/allocations/([^/]+)/(lease|context|all_gather|signals/preemption|reports|exit)(\?.*)?$"
)


class FakeMaster:
    """One allocation's worth of a master."""

    def __init__(self, work: dict[str, Any], context: bytes = b"") -> None:
        self.work = work
        self.context = context
        self.apart = False  # the context is to be fetched
        self.leases: list[dict[str, Any]] = []
        self.holder: str | None = None
        self.streams: dict[str, list[Any]] = {}
        self.heartbeats: list[int] = []
        self.posts: list[tuple[str, int, int]] = []  # stream, first, number of records
        self.exits: dict[int, dict[str, Any]] = {}
        self.preempt: str | None = None
        self.gone = False
        self.awake = threading.Event()  # while this is not set, calls are taken and not answered
        self.awake.set()
        self.delay = 0.0  # seconds before each answer to a report
        self.answer_status: dict[str, int] = {}  # verb -> status to answer with instead
        self.retry_after: int | None = None  # seconds, said with each such answer
        self.refuse_record: Callable[[Any], bool] = lambda record: False
        self.decide: Callable[[FakeMaster, str, Any], None] = lambda master, stream, record: None
        self.checkpoints: dict[str, Any] = {}
        self.requests: list[str] = []
        self._gathered: dict[str, dict[str, Any]] = {}
        self.changed = threading.Condition()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.come()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def come(self) -> None:
        """Listen, on the same port as before."""
        master = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                return

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if master._server is None:
                    self.close_connection = True
                    return
                master.awake.wait()
                status, answer = master._answer(self.command, self.path, self.headers, body)
                payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.send_header("Content-Type", "application/json")
                if status == 503 and master.retry_after is not None:
                    self.send_header("Retry-After", str(master.retry_after))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PATCH = _serve

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                return  # a client that was killed in mid-request

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def vanish(self) -> None:
        """Listen no more; requests on open connections are cut off."""
        server, self._server = self._server, None
        self.awake.set()
        with self.changed:
            self.changed.notify_all()
        if server is not None:
            server.shutdown()
            server.server_close()

    close = vanish

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until `condition` holds; raises AssertionError after `seconds`."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), f"not within {seconds} s"
            return condition()

    def lines(self, stream: str = "log-0", source: str | None = None) -> list[str]:
        return [
            record["line"]
            for record in self.streams.get(stream, [])
            if "line" in record and record.get("source") == source
        ]

    def kinds(self, kind: str) -> list[Any]:
        return [record for record in self.streams.get("core", []) if record["kind"] == kind]

    def ask_to_leave(self, reason: str) -> None:
        with self.changed:
            self.preempt = reason
            self.changed.notify_all()

    def _answer(self, verb: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        with self.changed:
            self.requests.append(f"{verb} {path}")
            if headers.get("Authorization") != f"Bearer {TOKEN}":
                return 401, {"error": {"code": 16, "error": "unauthenticated"}}
            if path.startswith("/api/v1/checkpoints/"):
                found = self.checkpoints.get(path.rsplit("/", 1)[1])
                return (200, {"checkpoint": found}) if found else (404, {"error": {"error": "no such checkpoint"}})
            match = _ALLOCATION.match(path)
            if match is None:
                return 404, {"error": {"error": f"no route {path}"}}
            call = match.group(2)
            if call in self.answer_status:
                return self.answer_status[call], {"error": {"error": f"told to refuse {call}"}}
            if call == "signals/preemption":
                self.changed.wait_for(lambda: self.preempt or self._server is None, 2.0)
                return 200, {"preempt": self.preempt is not None, "reason": self.preempt or ""}
            if call == "all_gather":
                return self._gather(body)
        if call == "reports" and self.delay:
            time.sleep(self.delay)
        with self.changed:
            try:
                return getattr(self, f"_{call}")(body)  # type: ignore[no-any-return]
            finally:
                self.changed.notify_all()

    def _lease(self, body: Any) -> tuple[int, Any]:
        if self.holder not in (None, body["job_id"]):
            return 409, {"error": {"error": "another job holds this allocation"}}
        self.holder = body["job_id"]
        self.leases.append(body)
        files = None if self.apart else listed(self.context)
        return 200, {**self.work, "files": files, "context_size": len(self.context)}

    def _context(self, body: Any) -> tuple[int, Any]:
        return 200, self.context

    def _gather(self, body: Any) -> tuple[int, Any]:
        self._gathered[body["requestUuid"]] = body["data"]
        self.changed.notify_all()
        if not self.changed.wait_for(lambda: len(self._gathered) == body["numPeers"], 1.0):
            return 408, {"error": {"error": "not all peers are here"}}
        return 200, {"data": list(self._gathered.values())}

    def _reports(self, body: Any) -> tuple[int, Any]:
        kept = self.streams.setdefault(body["stream"], [])
        records = body["records"]
        if not records:
            self.heartbeats.append(body["node_rank"])
        if any(self.refuse_record(record) for record in records):
            return 422, {"error": {"error": "a record cannot be stored"}}
        self.posts.append((body["stream"], body["first"], len(records)))
        if body["first"] <= len(kept) + 1:
            for record in records[len(kept) + 1 - body["first"] :]:
                kept.append(record)
                self.decide(self, body["stream"], record)
        preempt = {"reason": self.preempt} if self.preempt else None
        return 200, {"acked": len(kept), "preempt": preempt, "gone": self.gone}

    def _exit(self, body: Any) -> tuple[int, Any]:
        acked = {}
        for last in body.pop("reports", ()):
            status, answer = self._reports(last)
            if status != 200:
                return status, answer
            acked[last["stream"]] = answer["acked"]
        self.exits[body["node_rank"]] = body
        return 200, {"acked": acked}
