"""Decides what a job may mount from this host: paths that its account can open, and none that would make it root.

Docker opens a mount's source as root, so that folders which are closed to the user would not protect what is below
them. So each source is opened here by a process that has become the job's account, and Docker gets the real path that
it found. Before Docker opens that path, a user with write access can replace a folder by a link. So after the start,
what the container sees is compared with what was opened (`Sources.differences`), and a container that sees something
else is killed at once. Until that check, and in a container that ends before it, such a replacement works; setting
`--mount-root` to folders in which users can replace nothing closes this gap as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from trainmaster.agent.engine import ContainerError
from trainmaster.agent_protocol.messages import Blame
from trainmaster.containers import Bind
from trainmaster.containers.docker import ContainerUser, is_closed

DEADLINE = 30.0  # seconds to open the sources: a file server may hang
# Becomes the job's account, for good, and prints where each path leads. It is started as root, because its Python may
# be in a folder that only root can enter.
_OPEN = """
import json, os, sys
asked, found = json.load(sys.stdin), []
if asked["uid"] != os.geteuid():
    os.setgroups(asked["groups"])
    os.setresgid(asked["gid"], asked["gid"], asked["gid"])
    os.setresuid(asked["uid"], asked["uid"], asked["uid"])
for path in asked["paths"]:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        status = os.fstat(opened)
        found.append([os.readlink("/proc/self/fd/%d" % opened), status.st_dev, status.st_ino])
        os.close(opened)
    except OSError as error:
        found.append(error.strerror)
json.dump(found, sys.stdout)
"""


# Prints what a process sees at each path. Links in its image are relative to its own root, so chroot goes there first.
_LOOK = """
import json, os, sys
asked, found = json.load(sys.stdin), []
os.chroot("/proc/%d/root" % asked["pid"])
for path in asked["paths"]:
    try:
        status = os.stat(path)
        found.append([status.st_dev, status.st_ino])
    except OSError:
        found.append(None)
json.dump(found, sys.stdout)
"""


class Opened(NamedTuple):
    """The real path behind a path, with device and inode."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True)
class Sources:
    """The mounts of one job, with the real paths of their sources."""

    binds: Sequence[Bind]
    opened: Mapping[str, tuple[int, int]]  # container path -> device and inode

    def differences(self, pid: int) -> list[str]:
        """Return the container paths at which the process sees something else than what was opened. Empty when it has
        ended, or when this account may not inspect it."""
        try:
            now = _asked(_LOOK, {"pid": pid, "paths": list(self.opened)})
        except (subprocess.SubprocessError, OSError, ValueError):
            return []
        return [
            path
            for (path, identity), there in zip(self.opened.items(), now, strict=True)
            if there is not None and tuple(there) != identity
        ]


class Mounts:
    """The mount rules of one host."""

    def __init__(self, roots: Sequence[str] = (), kept: Sequence[str] = ()) -> None:
        """`roots`: if not empty, sources must be below one of these folders. `kept`: folders that no job may see: the
        agent's own, Docker's data."""
        self._roots = [os.path.realpath(root) for root in roots]
        self._kept = [os.path.realpath(folder) for folder in kept]

    def open(self, binds: Sequence[Bind], account: ContainerUser) -> Sources:
        """Open the sources of a container's mounts as the job's account. Raises ContainerError."""
        sources = _opened([bind.host_path for bind in binds], account) if binds else []
        real: list[Bind] = []
        opened: dict[str, tuple[int, int]] = {}
        for bind, source in zip(binds, sources, strict=True):
            if isinstance(source, str):
                raise ContainerError(
                    f"bind_mounts: {bind.host_path} cannot be opened by {account.name}, the account of this job "
                    f"on this host: {source}.",
                    Blame.JOB,
                )
            if why := self._objection(source.path):
                raise ContainerError(f"bind_mounts: {bind.host_path} {why}.", Blame.JOB)
            real.append(replace(bind, host_path=source.path))
            opened[os.path.normpath(bind.container_path)] = (source.device, source.inode)
        return Sources(real, opened)

    def _objection(self, path: str) -> str | None:
        if is_closed(path):
            return f"is {path}, which jobs may not mount"
        for kept in self._kept:
            if _below(path, kept) or _below(kept, path):
                return "is, or contains, a folder of Docker or of the agent"
        if self._roots and not any(_below(path, root) for root in self._roots):
            return f"lies outside of the folders that jobs on this host may mount ({', '.join(self._roots)})"
        return None


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _opened(paths: Sequence[str], account: ContainerUser) -> list[str | Opened]:
    """Return for each path what it leads to, or why it cannot be opened. Raises ContainerError."""
    asked = {"uid": account.uid, "gid": account.gid, "groups": list(account.groups), "paths": list(paths)}
    try:
        return [one if isinstance(one, str) else Opened(*one) for one in _asked(_OPEN, asked)]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        text = f"The mounts of this job cannot be opened as {account.name}: {error}."
        raise ContainerError(text, Blame.HOST) from None


def _asked(program: str, question: Mapping[str, object]) -> list[Any]:
    """Run a small program with `question` as its input; return its answer. Raises SubprocessError, OSError,
    ValueError."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
        cwd="/",
        env={},
    )
    data: list[Any] = json.loads(done.stdout)
    return data
