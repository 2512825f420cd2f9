"""A PostgreSQL server like a site's (TCP, password, its own account) that a test may stop, freeze and restart."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2

from tests.support.master import free_port
from trainmaster.master.db.binaries import find_binaries

USER = "postgres"  # who runs the server where the tests are root's
DEADLINE = 60.0  # seconds


class Postgres:
    """Listens on 127.0.0.1. `password_file` opens it for the role `trainmaster`."""

    def __init__(self, folder: Path) -> None:
        self._binaries = find_binaries(None)
        self._account = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        self._folder, self._data = folder, folder / "data"
        self.password_file = folder / "password"
        self._log = folder / "postgresql.log"
        self.port = free_port()  # which nobody is given while the server is stopped
        self._process: subprocess.Popen[bytes] | None = None
        self._create()

    def _create(self) -> None:
        self.password_file.write_text(secrets.token_urlsafe(12) + "\n")
        if self._account:
            self._folder.chmod(0o755)
            self._data.mkdir()
            for path in (self._data, self.password_file):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        options = ["-U", "trainmaster", "-A", "scram-sha-256", f"--pwfile={self.password_file}", "-E", "UTF8", "-N"]
        subprocess.run(
            [self._binaries.program("initdb"), "-D", str(self._data), *options],
            check=True, capture_output=True, **self._identity(),
        )  # fmt: skip

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {"cwd": "/"}
        return {"cwd": "/", "user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "120",
        }
        command = [self._binaries.program("postgres"), "-D", str(self._data)]
        command += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._identity()
            )
        deadline = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(
                host="127.0.0.1", port=self.port, user="trainmaster", dbname="postgres",
                password=self.password_file.read_text().strip(), connect_timeout=5,
            ).close()  # fmt: skip
        except psycopg2.OperationalError:
            return False
        return True

    def configuration(self) -> str:
        """The `db` section for it."""
        where = f"host: 127.0.0.1, port: {self.port}, user: trainmaster, name: postgres"
        return f"db: {{{where}, password_file: {self.password_file}}}\n"

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Freeze its processes inside the block: it accepts connections and does not answer."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        stopped = [self._process.pid]
        while more := [pid for pid in self._children() if pid not in stopped]:
            for pid in more:
                os.kill(pid, signal.SIGSTOP)
            stopped += more
        try:
            yield
        finally:
            for pid in reversed(stopped):
                with suppress(ProcessLookupError):  # somebody has killed it
                    os.kill(pid, signal.SIGCONT)

    def _children(self) -> list[int]:
        assert self._process is not None
        return [
            int(pid) for pid in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        ]

    def stop(self) -> None:
        """Stop it at once, as in a power cut; it recovers from its write-ahead log."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:  # it waits for one that was about to be refused, up to a minute
                for pid in (*self._children(), self._process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait(DEADLINE)
            self._process = None
