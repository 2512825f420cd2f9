"""A real OpenSSH server on 127.0.0.1 with its own keys, which a test may stop and freeze, and whose connections it may
cut."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.cluster import packages
from tests.support.cluster.layout import USERS
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users
from tests.support.master import free_port

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
MaxStartups 100
MaxSessions 10
UseDNS no
Banner {folder}/banner
"""


class Sshd:
    """One server. Users log in with `key`."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise Unavailable("not root, and sshd lets other accounts in only as root")
        packages.install(("openssh-server",))
        ensure_users()
        for user in USERS:
            if _shadow(user).startswith("!"):  # locked: sshd would refuse every key
                subprocess.run(["usermod", "--password", "*", user], check=True)
        self.folder = folder
        self.key = folder / "key"
        self.known_hosts = folder / "known_hosts"
        folder.mkdir(mode=0o711)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.make_key(self.key)
        self.make_key(folder / "host_key")
        shutil.copy(self.key.with_suffix(".pub"), folder / "authorized_keys")
        (folder / "authorized_keys").chmod(0o644)
        (folder / "banner").write_text("This is a banner before the login.\n")
        self.port = free_port()  # which nobody is given while the server is stopped
        (folder / "sshd_config").write_text(CONFIG.format(port=self.port, folder=folder))
        self.trust()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def make_key(path: Path, kind: str = "ed25519") -> None:
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)

    def trust(self) -> None:
        """Write the known hosts anew."""
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self) -> None:
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def start_if_stopped(self) -> None:
        if self._process is None:
            self.start()

    def stop(self) -> None:
        """End the server and all connections at once, as in a power cut; programs in sessions continue."""
        if self._process is None:
            return
        for pid in [*self.connections(), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def cut(self) -> None:
        """End all connections; new ones are possible."""
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server inside the block: connections stay open without an answer."""
        assert self._process is not None
        pids = [self._process.pid, *self.connections()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def connections(self) -> list[int]:
        """Processes of the server that serve a connection."""
        if self._process is None:
            return []
        return [pid for pid in _descendants(self._process.pid) if _name(pid) in ("sshd", "sshd-session")]


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _shadow(user: str) -> str:
    pwd.getpwnam(user)
    lines = Path("/etc/shadow").read_text().splitlines()
    return next((line.split(":")[1] for line in lines if line.startswith(f"{user}:")), "")
