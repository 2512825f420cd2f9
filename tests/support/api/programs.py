"""JupyterLab and TensorBoard for tests: small servers with the same arguments and protocol, or the real ones in an
environment that is built once per machine (`-m ring`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.reference import reference

REAL = ("jupyterlab==4.*", "tensorboard==2.*", "setuptools<80")

JUPYTER = """#!{python}
import asyncio, http, json, os, sys
from websockets.asyncio.server import serve

options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
base, token = options["ServerApp.base_url"], os.environ["JUPYTER_TOKEN"]
kernels = []

def answer(socket, request):
    if request.headers.get("Authorization") != "token " + token:
        return socket.respond(http.HTTPStatus.FORBIDDEN, "who are you?")
    path = request.path[len(base) - 1:]
    assert request.path.startswith(base), request.path
    if path.startswith("/api/kernels/"):
        return None
    if path == "/api/start":
        kernels.append({"id": "k", "connections": 1, "execution_state": "busy"})
    if path == "/api/stop":
        kernels.clear()
    found = kernels if path == "/api/kernels" else []
    response = socket.respond(http.HTTPStatus.OK, json.dumps(found))
    return response

async def kernel(socket):
    async for message in socket:
        await socket.send(message.upper())

async def main():
    where = options["ServerApp.ip"], int(options["ServerApp.port"])
    async with serve(kernel, *where, process_request=answer):
        print("a notebook stands", flush=True)
        await asyncio.Future()
asyncio.run(main())
"""

TENSORBOARD = """#!{python}
import functools, http.server, json, os, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
class Shows(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        assert self.path.startswith(options["path_prefix"]), self.path
        logs = options["logdir"]
        found = [os.path.relpath(folder, logs) for folder, _, files in os.walk(logs, followlinks=True) if files]
        content = json.dumps(found).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_): pass
print("a board stands", sys.argv[1:], flush=True)
http.server.ThreadingHTTPServer((options["host"], int(options["port"])), Shows).serve_forever()
"""


def stand_ins(folder: Path) -> Path:
    """A folder for PATH."""
    for name, text in (("jupyter", JUPYTER), ("tensorboard", TENSORBOARD)):
        program = folder / name
        program.write_text(text.replace("{python}", sys.executable))
        program.chmod(0o755)
    return folder


def real() -> Path:
    """The same with the published programs. Raises NoReference."""

    def build(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=reference.DEADLINE)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *REAL], capture_output=True, text=True, timeout=reference.DEADLINE, check=False)
        if done.returncode != 0:
            raise reference.NoReference(f"the installation failed: {done.stderr.strip().splitlines()[-1:]}")

    return reference._built(reference._cache() / "notebooks", build) / "bin"
