"""A hostile service in a job: shows the requests that reach it, and answers with chosen headers."""

from __future__ import annotations

import base64
from typing import Any

from tests.support.api.http import Api
from tests.support.api.tasks import generic, lines
from tests.support.master import free_port, wait_for

# `GET /say?NAME=VALUE...` answers 401 with these headers; everything else shows the request's.
TRAP = """
import http.server, json, sys, urllib.parse
class Trap(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        said = urllib.parse.parse_qsl(parts.query) if parts.path == "/say" else []
        content = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(401 if said else 200)
        self.send_header("content-length", str(len(content)))
        self.send_header("content-type", "text/html")
        for name, value in said:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
    do_POST = do_GET
    def log_message(self, *_): pass
print("trap stands", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Trap).serve_forever()
"""


def trap(api: Api, *, everybody: bool = False) -> tuple[str, str]:
    """A task with such a service: its id and the path to it. `everybody`: it asks for no log-in of the master's."""
    port = free_port()
    text = f"""
        resources: {{slots: 0}}
        entrypoint: exec python3 trap.py {port}
        environment: {{proxy_ports: [{{proxy_port: {port}, unauthenticated: {str(everybody).lower()}}}]}}
    """
    task_id = generic(api, text, contextDirectory=[file("trap.py", TRAP)])
    wait_for(lambda: "trap stands" in lines(api, task_id), "the trap")
    wait_for(lambda: api.get(f"/proxy/{task_id}:{port}/").status == 200, "the way to the trap")
    return task_id, f"/proxy/{task_id}:{port}/"


def file(name: str, text: str) -> dict[str, Any]:
    content = base64.b64encode(text.encode()).decode()
    return {"path": name, "type": 48, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}
