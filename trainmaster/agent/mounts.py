"""What of this host a job may mount: what its account reaches by itself, and nothing that makes it root or another job.

Docker opens a mount's source as root, so folders above it that are closed to a user would not protect what is below. So
each source is opened here by a process that has become the job's account, and Docker is told the real path that this
found. Between that and Docker's own look somebody who may write there can exchange a folder for a link: when the
container has been started, what it sees is compared with what was opened (`Sources.differences`), and it is ended at
once where that is something else. For these moments, and in a container that ends before the look, the exchange holds;
`--mount-root` with folders in which users can exchange nothing closes this as well.
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
# Becomes the job's account, for good, and says where each path leads and what is there. (Its Python may lie where only
# root can start it, so that it is started as root.)
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


# Says what a process sees at each path. Links in its image mean places below its own root, which becomes ours for this.
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
    """What a path led to."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True)
class Sources:
    """The mounts of one job, with the real paths of their sources."""

    binds: Sequence[Bind]
    opened: Mapping[str, tuple[int, int]]  # container path -> device and inode

    def differences(self, pid: int) -> list[str]:
        """Container paths at which the process sees something else than what was opened. Empty when it has ended, or
        when this account may not look."""
        try:
            seen = _asked(_LOOK, {"pid": pid, "paths": list(self.opened)})
        except (subprocess.SubprocessError, OSError, ValueError):
            return []
        return [
            path
            for (path, identity), there in zip(self.opened.items(), seen, strict=True)
            if there is not None and tuple(there) != identity
        ]


class Mounts:
    """The rules of one host."""

    def __init__(self, roots: Sequence[str] = (), kept: Sequence[str] = ()) -> None:
        """`roots`: folders below which alone sources may lie; empty allows all that the account reaches. `kept`:
        folders that no job may see: the agent's own, Docker's data."""
        self._roots = [os.path.realpath(root) for root in roots]
        self._kept = [os.path.realpath(folder) for folder in kept]

    def open(self, binds: Sequence[Bind], account: ContainerUser) -> Sources:
        """Raises CannotStart."""
        found = _opened([bind.host_path for bind in binds], account) if binds else []
        real: list[Bind] = []
        opened: dict[str, tuple[int, int]] = {}
        for bind, seen in zip(binds, found, strict=True):
            if isinstance(seen, str):
                raise ContainerError(
                    f"bind_mounts: {bind.host_path} cannot be opened by {account.name}, who this job is on this host: "
                    f"{seen}.",
                    Blame.JOB,
                )
            if why := self._objection(seen.path):
                raise ContainerError(f"bind_mounts: {bind.host_path} {why}.", Blame.JOB)
            real.append(replace(bind, host_path=seen.path))
            opened[os.path.normpath(bind.container_path)] = (seen.device, seen.inode)
        return Sources(real, opened)

    def _objection(self, path: str) -> str | None:
        if is_closed(path):
            return f"is {path}, which no job may mount"
        for kept in self._kept:
            if _below(path, kept) or _below(kept, path):
                return "is, or holds, a folder of Docker's or of the agent's own"
        if self._roots and not any(_below(path, root) for root in self._roots):
            return f"lies outside of the folders that jobs on this host may mount ({', '.join(self._roots)})"
        return None


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _opened(paths: Sequence[str], account: ContainerUser) -> list[str | Opened]:
    """For each path where it leads, or why it cannot be opened. Raises CannotStart."""
    asked = {"uid": account.uid, "gid": account.gid, "groups": list(account.groups), "paths": list(paths)}
    try:
        return [one if isinstance(one, str) else Opened(*one) for one in _asked(_OPEN, asked)]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        text = f"The mounts of this job could not be opened as {account.name}: {error}."
        raise ContainerError(text, Blame.HOST) from None


def _asked(program: str, question: Mapping[str, object]) -> list[Any]:
    """What a small program answers. Raises SubprocessError, OSError, ValueError."""
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
    found: list[Any] = json.loads(done.stdout)
    return found
