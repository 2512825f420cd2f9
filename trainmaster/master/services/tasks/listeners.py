"""Checks whether the process that listens on a port of the master's machine belongs to a job, from Linux' `/proc`
(proc(5)).

Jobs of the dispatcher `local` run beside the master, and so may those of a small cluster. A job that names a port of
this machine must own the listening process: it must not expose the master, its neighbours or other users' jobs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainmaster.master.services.addresses import Address

_LISTENS = "0A"  # TCP_LISTEN
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_TRUSTED_FOR = 60.0  # seconds for which a socket is known to be a job's
_DEEPEST = 64  # ancestors of a process that are checked


@dataclass(frozen=True)
class _Socket:
    inode: int
    uid: int


class Listeners:
    """Checks and remembers the owners of sockets: finding an owner takes a walk over all processes."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()

    def there(self, address: Address, port: int) -> bool:
        """Whether any process listens there."""
        return any(_listening(address, port))

    def are_of(self, allocation_id: str, account: str | None, address: Address, port: int) -> bool:
        """Whether all listening processes there belong to the job: to its account, where that is not the master's own,
        or to a process that descends from the job's. `account`: that the job runs as, None for the master's."""
        owners = list(_listening(address, port))
        return bool(owners) and all(self._is_of(allocation_id, account, owner) for owner in owners)

    def _is_of(self, allocation_id: str, account: str | None, one: _Socket) -> bool:
        if account is not None and _uid(account) == one.uid and one.uid not in (0, os.geteuid()):
            return True
        key, time_now = (one.inode, allocation_id), time.monotonic()
        with self._lock:
            if self._known.get(key, 0.0) > time_now:
                return True
        if not any(_descends(pid, allocation_id) for pid in _holders(one.inode)):
            return False
        with self._lock:
            self._known = {known: until for known, until in self._known.items() if until > time_now}
            self._known[key] = time_now + _TRUSTED_FOR
        return True


def _uid(account: str) -> int | None:
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        return None


def _listening(address: Address, port: int) -> Iterator[_Socket]:
    """Yield the sockets that a connection to the address and port may end at."""
    accepted = {address.packed, bytes(16)}
    if address.version == 4:
        accepted |= {bytes(4), bytes(10) + b"\xff\xff" + address.packed}
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                where, _, number = fields[1].partition(":")
                if fields[3] == _LISTENS and int(number, 16) == port and _packed(where) in accepted:
                    yield _Socket(int(fields[9]), int(fields[7]))


def _packed(where: str) -> bytes:
    """Return the kernel writes words of 32 bits in the machine's own order."""
    words = [int(where[i : i + 8], 16) for i in range(0, len(where), 8)]
    return struct.pack(f"{'<' if sys.byteorder == 'little' else '>'}{len(words)}I", *words)


def _holders(inode: int) -> Iterator[int]:
    """Yield the processes that have the socket open, as far as the master may read their descriptors."""
    wanted = f"socket:[{inode}]"
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another account
                if any(_link(f"/proc/{folder.name}/fd/{fd}") == wanted for fd in os.listdir(folder / "fd")):
                    yield int(folder.name)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _descends(pid: int, allocation_id: str) -> bool:
    """Whether the process or one that started it has the job's environment."""
    mark = b"DET_ALLOCATION_ID=" + allocation_id.encode()
    for _ in range(_DEEPEST):
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid <= 1:
            return False
    return False


LISTENERS = Listeners()
