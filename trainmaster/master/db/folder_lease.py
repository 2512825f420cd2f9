"""Ensures one master per data folder, with a lease that also holds between machines that share a file system.

On one machine `flock` decides. Between machines it may not (NFS without a lock daemon), so the holder also increments
a number in the file every few seconds. A master that finds another machine's lease watches that number for two periods
and refuses to start while it changes. Clocks are not compared: login nodes' clocks differ.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PERIOD = 4.0  # seconds between two beats


class FolderHeld(RuntimeError):
    """Another master holds the data folder."""


@dataclass(frozen=True)
class _Holder:
    host: str
    boot: str
    pid: int
    beat: int
    released: bool

    @classmethod
    def read(cls, path: Path) -> _Holder | None:
        try:
            data = json.loads(path.read_text())
            return cls(data["host"], data["boot"], data["pid"], data["beat"], data["released"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


class FolderLease:
    """Held from `acquire` to `release`; beats in a thread of its own."""

    def __init__(self, folder: Path, *, period: float = PERIOD) -> None:
        self.path = folder / "master.lock"
        self._period = period
        self._beat = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._file = -1

    def acquire(self) -> None:
        """Take the lease. Raises FolderHeld with its holder's process and host."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise FolderHeld(self._sentence(_Holder.read(self.path))) from None
        holder = _Holder.read(self.path)
        if holder and not holder.released and (holder.host, holder.boot) != _this_machine() and self._moves(holder):
            os.close(fd)
            raise FolderHeld(self._sentence(holder))
        self._file = fd
        self._write(released=False)
        self._thread = threading.Thread(target=self._run, name="folder-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        if self._file < 0:
            return
        self._stop.set()
        if self._thread:
            self._thread.join()
        self._write(released=True)
        os.close(self._file)
        self._file = -1

    def _moves(self, before: _Holder) -> bool:
        deadline = time.monotonic() + 2.5 * self._period
        while time.monotonic() < deadline:
            time.sleep(self._period / 10)
            now = _Holder.read(self.path)
            if now and now != before:
                return not now.released
        return False

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._beat += 1
            self._write(released=False)

    def _write(self, *, released: bool) -> None:
        host, boot = _this_machine()
        record = {"host": host, "boot": boot, "pid": os.getpid(), "beat": self._beat, "released": released}
        data = json.dumps(record).encode().ljust(512) + b"\n"
        os.pwrite(self._file, data, 0)
        os.fsync(self._file)

    def _sentence(self, holder: _Holder | None) -> str:
        who = f" (process {holder.pid} on {holder.host})" if holder else ""
        return (
            f"The data folder {self.path.parent} is in use by another master{who}. "
            "Stop that one first, or choose another folder with --data."
        )


def _this_machine() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return socket.gethostname(), boot
