"""A reverse proxy under a prefix, as Open OnDemand's two: `/rnode/n1/8080/ui/` here is `/ui/` at the master, and
`/node/n1/8080/ui/` stays what it is. It passes the node's name as `Host`. WebSockets pass it too, unless it refuses
them as old proxies do, and can be cut."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STRIPPED, KEPT = "/rnode/n1/8080", "/node/n1/8080"
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "upgrade", "host"))
_UPGRADE = ("connection", "upgrade")


@dataclass
class Proxy:
    """`url`: of the master behind it, without a slash at its end. `sockets`: whether WebSockets pass. `opened`: how
    many have."""

    url: str = ""
    sockets: bool = True
    opened: int = 0
    _open: set[socket.socket] = field(default_factory=set)

    @property
    def passing(self) -> int:
        """How many WebSockets are open."""
        return len(self._open)

    def cut(self) -> None:
        """Ends the connections of all WebSockets, without a word."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def tunnel(self, one: socket.socket, other: socket.socket) -> None:
        """Passes bytes on in both directions until either side is closed."""

        def pass_on(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        self.opened += 1
        self._open.add(other)
        back = threading.Thread(target=pass_on, args=(other, one), daemon=True)
        back.start()
        pass_on(one, other)
        back.join()
        self._open.discard(other)


@contextmanager
def behind(url: str, prefix: str) -> Iterator[str]:
    """The address of the master at `url` behind the proxy, without a slash at its end."""
    with proxied(url, prefix) as proxy:
        yield proxy.url


@contextmanager
def proxied(url: str, prefix: str = STRIPPED) -> Iterator[Proxy]:
    target = urlsplit(url)
    assert target.hostname
    proxy = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404, "outside of the prefix")
                return
            if self.headers.get("upgrade", "").lower() == "websocket" and proxy.sockets:
                self._upgrade()
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
            except ConnectionError:
                self.send_error(502, "the master is away")
            finally:
                connection.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

        def _upgrade(self) -> None:
            self.close_connection = True
            head = [f"{self.command} {self.path.removeprefix(STRIPPED)} HTTP/1.1", "Host: n1:8080"]
            for name, value in self.headers.items():
                if name.lower() in _UPGRADE or name.lower() not in _HOP_BY_HOP:
                    head.append(f"{name}: {value}")
            try:
                upstream = socket.create_connection((target.hostname, target.port), timeout=60)
            except ConnectionError:
                self.send_error(502, "the master is away")
                return
            with upstream:
                upstream.settimeout(None)
                upstream.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
                proxy.tunnel(self.connection, upstream)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}{prefix}"
    try:
        yield proxy
    finally:
        proxy.cut()
        server.shutdown()
        server.server_close()
        thread.join()
