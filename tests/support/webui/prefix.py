"""A reverse proxy under a prefix, as Open OnDemand's two: `/rnode/n1/8080/ui/` here is `/ui/` at the master, and
`/node/n1/8080/ui/` stays what it is. It passes the node's name as `Host`, and no WebSocket."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STRIPPED, KEPT = "/rnode/n1/8080", "/node/n1/8080"
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "upgrade", "host"))


@contextmanager
def behind(url: str, prefix: str) -> Iterator[str]:
    """The address of the master at `url` behind the proxy, without a slash at its end."""
    target = urlsplit(url)
    assert target.hostname

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404, "outside of the prefix")
                return
            assert target.hostname
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
            try:
                connection.request(self.command, self.path.removeprefix(STRIPPED), body, {**sent, "Host": "n1:8080"})
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in (*_HOP_BY_HOP, "content-length", "date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            finally:
                connection.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
