"""Start daemons, remember exactly which processes they are, and end only those."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def started_at(pid: int) -> str | None:
    """The kernel's start time of a live process, in clock ticks; None when it is gone or a zombie.

    A pid alone may belong to another process after a crash or a reboot; pid and start time together cannot.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll until `condition` holds. Raises TimeoutError that names `what` was awaited."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


class Daemon:
    """One long-running process, known by a pid file that holds pid, start time and boot."""

    def __init__(self, name: str, pid_file: Path, log: Path) -> None:
        self.name = name
        self.pid_file = pid_file
        self.log = log

    def pid(self) -> int | None:
        """The pid of the running daemon, or None."""
        try:
            pid, start, boot = self.pid_file.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if boot == boot_id() and started_at(int(pid)) == start else None

    def start(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it unless it runs. It outlives the process that started it."""
        if self.pid() is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environment),
                cwd="/",
                start_new_session=True,
            )
        self.pid_file.write_text(f"{process.pid} {started_at(process.pid)} {boot_id()}\n")
        # The daemon is meant to outlive this object; without this Python warns about a running child.
        process.returncode = 0

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when it is not running."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    def stop(self, seconds: float = 30.0) -> None:
        """SIGTERM, then SIGKILL when it has not ended after `seconds`."""
        if self.send(signal.SIGTERM):
            self.send(signal.SIGCONT)
            try:
                wait_until(lambda: self.pid() is None, seconds, f"end of {self.name}")
            except TimeoutError:
                self.kill()
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        wait_until(lambda: self.pid() is None, 60, f"end of {self.name} after SIGKILL")
        self.pid_file.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The last line of its log, for messages."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no log"
        return lines[-1] if lines else "an empty log"
