"""Restricts an HTTP server of a job, as Horovod's rendezvous, to the job's own processes.

On the server's machine these are processes of the job's account. Another node of the job shows a secret that both
derive from the job's session token; from then on its address is admitted, also for other accounts of that node.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
from http.server import BaseHTTPRequestHandler
from typing import Optional, Set, Type

from trainmaster.core.info import get_cluster_info
from trainmaster.runtime.sockets import owner_of_peer

_ENTRANCE = "/trainmaster-node"
_SECRET = "X-Trainmaster-Node"  # noqa: S105 - the name of a header
_REFUSED = "Only processes of this job may use this server."


def node_secret() -> str:
    """Return the secret by which the nodes of this job know each other; random outside of a job, which has one node."""
    info = get_cluster_info()
    if info is None or not info.session_token:
        return os.urandom(32).hex()
    return hmac.new(info.session_token.encode("ascii"), b"node", hashlib.sha256).hexdigest()


def guarded(handler: Type[BaseHTTPRequestHandler], secret: str) -> Type[BaseHTTPRequestHandler]:
    """Return a subclass of `handler` that answers only the job's own processes, with 403 to all others."""
    admitted: Set[str] = set()  # addresses of other nodes

    class Guarded(handler):  # type: ignore[misc, valid-type]
        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if self.path == _ENTRANCE:
                self._admit()
                return False
            if self.client_address[0] in admitted or self._owner() == os.geteuid():
                return True
            self.send_error(403, _REFUSED)
            return False

        def _admit(self) -> None:
            if not self._shows(secret):
                self.send_error(403, _REFUSED)
                return
            admitted.add(self.client_address[0])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _shows(self, secret: str) -> bool:
            shown = self.headers.get(_SECRET, "").encode("utf-8", "replace")
            return hmac.compare_digest(shown, secret.encode("ascii"))

        def _owner(self) -> Optional[int]:
            return owner_of_peer(self.client_address[:2], self.connection.getsockname()[:2])

    return Guarded


def enter(address: str, port: int, secret: str) -> None:
    """Have this node admitted by the server of the first one. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(address, port, timeout=5.0)
    try:
        connection.request("GET", _ENTRANCE, headers={_SECRET: secret})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise http.client.HTTPException("it answers %d" % answer.status)
    finally:
        connection.close()
