"""Docker hosts for tests: `trainmaster agent` in its own process, and a minimal master for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import uvicorn
from fastapi import FastAPI

from tests.support.cluster.users import ensure_users
from tests.support.docker.engine import DockerEngine
from trainmaster.master.api import agents
from trainmaster.master.http import error_envelope
from trainmaster.master.http.dependencies import ServedMaster
from trainmaster.master.services.clusters.clusters import Cluster, Clusters
from trainmaster.master.services.context import Settings, SiteDefaults
from trainmaster.master.services.store import Store, Wakeups

from trainmaster.dispatchers.docker import DockerDispatcher  # isort: skip

USER = "tmalice"
PATIENCE = 60.0  # seconds for a server to start or end
LAST_CALL = 90.0  # the same for an agent to end: a call of the engine that hangs ends after 60


class AgentProcess:
    """One Docker host. Several can share one daemon: each knows its own containers by its name."""

    def __init__(
        self,
        engine: DockerEngine,
        folder: Path,
        url: str,
        token_file: Path,
        name: str = "host1",
        *,
        slots: int = 2,
        pool: str = "",
        job_user: str = USER,
        linked_users: bool = False,
    ) -> None:
        ensure_users()
        self.name, self.folder = name, folder
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self._command = [
            *(sys.executable, "-m", "trainmaster.cli.admin", "agent"),
            *("--master", url, "--agent-id", name, "--token-file", str(token_file), "--data", str(self.data)),
            *("--slots", str(slots), "--slot-type", "cpu", "--job-user", job_user, "--docker", engine.address),
            *("--pool", pool),
            *(["--linked-users"] if linked_users else []),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> AgentProcess:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/"
            )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            line = output.readline()
        assert line.startswith(f"agent {self.name} works"), (
            f"it said {line!r}; its log:\n{self.log.read_text()[-3000:]}"
        )
        return self

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def job_folder(self, token: str) -> Path:
        return self.data / "jobs" / token

    def kill(self) -> None:
        """SIGKILL, as a crash. Containers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(LAST_CALL)
            except subprocess.TimeoutExpired:
                self.kill()
                said = self.log.read_text()[-3000:]
                raise AssertionError(f"the agent {self.name} did not leave; its log:\n{said}") from None

    def complaints(self) -> list[str]:
        """What its log calls an error: bugs show here."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line for line in text.splitlines() if " ERROR " in line or line.startswith("Traceback")]


class HubServer:
    """A server with the agents' part of the master's API."""

    def __init__(self, dispatcher: DockerDispatcher, folder: Path) -> None:
        self._wakeups, self._folder = Wakeups(), folder
        self._app = app = FastAPI()
        error_envelope.install(app)
        app.include_router(agents.router)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.serve(dispatcher)
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, access_log=False)
        )
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def serve(self, dispatcher: DockerDispatcher) -> None:
        """From now on answer for this one."""
        cluster = Cluster(name=dispatcher.name, dispatcher=dispatcher, job_root=self._folder)
        settings = Settings("0", "", "", b"", "", self.url, b"")
        # The agents' calls do not ask the database.
        self._app.state.master = ServedMaster(
            cast(Store, None), settings, Clusters([cluster]), cast(SiteDefaults, None), self._wakeups
        )

    def start(self) -> HubServer:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not self._server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        self._wakeups.close()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()


def short_folder(parent: Path) -> Path:
    """A folder that other accounts can pass through."""
    parent.mkdir(parents=True, exist_ok=True)
    os.chmod(parent, 0o711)
    return parent
