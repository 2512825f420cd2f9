"""Finds and signals processes of this machine, identified by pid, start time and boot so that pids can be reused."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path


def boot_id() -> str:
    """Return an id that changes with every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Process:
    """Identity of a process: pids are reused, the three values together are not."""

    pid: int
    start: str  # clock ticks since boot, as in /proc/<pid>/stat
    boot: str

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """From "pid start boot", as the job script writes it."""
        parts = text.split()
        return cls(int(parts[0]), parts[1], parts[2]) if len(parts) == 3 and parts[0].isdigit() else None

    @property
    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        return self.boot == boot_id() and _stat(self.pid) == self.start

    @property
    def from_before_a_reboot(self) -> bool:
        return self.boot != boot_id()

    def send(self, number: signal.Signals) -> bool:
        """Signal this process only; False when it has ended."""
        if not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def kill_job(leader: Process, mark: str) -> None:
    """SIGKILL `leader`, all its descendants, and every process whose environment holds `mark` ("NAME=value"),
    whatever session or group it has moved to."""
    victims = {leader.pid} if leader.alive else set()
    victims |= set(_descendants(victims)) | {pid for pid, _ in _marked({mark})}
    for pid in victims - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def marks_alive(marks: Set[str]) -> set[str]:
    """Return those of `marks` ("NAME=value") that a running process has in its environment."""
    return {mark for _, mark in _marked(marks)} if marks else set()


def remove_leftovers(bases: Iterable[str]) -> None:
    """Remove the folders of killed jobs of this account below `bases`. Each names its shell, which would have removed
    it, and the boot (templates/start.sh.j2)."""
    name = re.compile(rf"tm\.(\d+)\.{re.escape(boot_id().partition('-')[0])}\.\d+")
    for base in dict.fromkeys(bases):
        with contextlib.suppress(OSError):
            for entry in os.scandir(base):
                match = name.fullmatch(entry.name)
                if match is None or not entry.is_dir(follow_symlinks=False) or _stat(int(match[1])) is not None:
                    continue
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    shutil.rmtree(entry.path, ignore_errors=True)


def _stat(pid: int) -> str | None:
    fields = _fields(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]


def _fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; the name before it, in brackets, may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def _descendants(roots: set[int]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _fields(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child)
            yield child


def _marked(marks: Set[str]) -> Iterator[tuple[int, str]]:
    wanted = {mark.encode() for mark in marks}
    for pid in _pids():
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            present = wanted.intersection(environment.split(b"\0"))
            if present and _stat(pid) is not None:
                yield pid, present.pop().decode()
