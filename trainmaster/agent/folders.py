"""Folders that the agent keeps for each job on this host, and the state that it reads from them after a restart.

jobs/<token>/      the job folder; mode 0700, of the job's account
node/<token>/      empty at first: the container's /run/determined
home/<token>/      the container's home
secret             this agent's secret, by which the master knows it; mode 0600
shared/<sha256>/   a file that many jobs have in common, root's or the agent's own (agent.shared)
started/<token>    holds the job's id; exists from just before its container is started until all is removed
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from trainmaster.agent.shared import SharedFiles
from trainmaster.agent_protocol.archive import BadArchive, Item, content, list_below, open_below, unpack
from trainmaster.agent_protocol.messages import REGISTRY_LOGIN
from trainmaster.containers.docker import ContainerUser
from trainmaster.files import replace_file

MAX_FILES_OF_JOB = 2**30  # bytes that a master may stage
URL_FILE = "master-url"
SECRET_FILE = "secret"  # noqa: S105
STREAMS, EXITS = "spool", "exit"


class Folders:
    """All job folders of one agent."""

    def __init__(self, data: Path) -> None:
        self._data = data
        for name in ("jobs", "node", "home", "started"):
            (data / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        data.chmod(0o700)
        self.shared = SharedFiles(data / "shared", data / "jobs")

    def secret(self) -> str:
        """Return the secret that the master gave this agent; empty before it has enrolled."""
        try:
            return (self._data / SECRET_FILE).read_text().strip()
        except FileNotFoundError:
            return ""

    def keep_secret(self, secret: str) -> None:
        """Store the secret. Raises OSError."""
        replace_file(self._data / SECRET_FILE, f"{secret}\n")

    def job(self, token: str) -> Path:
        return self._data / "jobs" / token

    def node(self, token: str) -> Path:
        return self._data / "node" / token

    def home(self, token: str) -> Path:
        return self._data / "home" / token

    def started(self, token: str) -> str | None:
        """Return the job id under which a container was started here; None when none was."""
        try:
            return (self._data / "started" / token).read_text()
        except OSError:
            return None

    def mark_started(self, token: str, job_id: str) -> None:
        """Note that a container is about to start: one that is missing afterwards was removed, and is not started
        again."""
        replace_file(self._data / "started" / token, job_id)

    def known(self) -> set[str]:
        """Return the tokens of jobs that have files here."""
        return {name for part in ("jobs", "started") for name in os.listdir(self._data / part) if name[0] != "."}

    def stage(
        self,
        token: str,
        files: IO[bytes],
        account: ContainerUser,
        master_url: str,
        inside: Sequence[str] = (),
        shared: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes | None:
        """Create the job's folders again from the master's archive.

        Args:
            inside: folders below the node folder in which something is mounted; Docker would create them as root.
            shared: SHA-256 of files that the job has in common with others, by name. The archive need not hold those
                that stand here.

        Returns the content of REGISTRY_LOGIN, which is for the agent alone and never reaches the job; None without it.
        Raises BadArchive, OSError.
        """
        self._remove_folders(token)
        job = self.job(token)
        for folder in (job, self.node(token), self.home(token)):
            folder.mkdir(mode=0o700)
        for name in (STREAMS, EXITS):
            (job / name).mkdir(mode=0o700)
        for name in inside:
            (self.node(token) / name).mkdir(parents=True, exist_ok=True)
        unpack(files, job, ("",), MAX_FILES_OF_JOB)
        secret = _taken_out(job / REGISTRY_LOGIN)
        self.shared.take(job, shared)
        self._point_at_master(job, master_url)
        # Until here no other account could enter; the folder itself changes its owner last.
        if account.uid != os.geteuid():
            for folder in (self.node(token), self.home(token), job):
                for place, folders, names in os.walk(folder, topdown=False):
                    for name in (*folders, *names):
                        os.chown(Path(place) / name, account.uid, account.gid, follow_symlinks=False)
                os.chown(folder, account.uid, account.gid)
        return secret

    def _point_at_master(self, job: Path, master_url: str) -> None:
        """Give the job the address that works from this host, as an alternative to the one it was staged with."""
        path = job / "job.json"
        with contextlib.suppress(FileNotFoundError, ValueError):
            contents = json.loads(path.read_bytes())
            if isinstance(contents, dict):
                (job / URL_FILE).write_text(f"{master_url}\n")
                contents["master_url_file"] = str(job / URL_FILE)
                path.write_text(json.dumps(contents, indent=1))

    def remains(self, token: str, node_rank: int, output: bytes, limit: int) -> list[Item]:
        """List what the container left, for an archive: exit records, then the end of its output, then report streams
        as far as `limit` bytes allow. Never raises for what a job has done to its folder."""
        job = self.job(token)
        owner = _owner(job)
        items: list[Item] = []
        wanted = [f"{EXITS}/{name}" for name in list_below(job, EXITS) if name == f"{node_rank}.json"]
        items += _opened(job, wanted, owner)
        items.append(content("output.txt", output))
        left = limit - sum(item.size for item in items)
        for item in _opened(job, [f"{STREAMS}/{name}" for name in list_below(job, STREAMS)], owner):
            if not item.name.endswith(".jsonl") or item.size > left:
                item.handle.close()
                continue
            left -= item.size
            items.append(item)
        return items

    def remove(self, token: str) -> None:
        """Remove all files of a job. Raises OSError when something stays."""
        self._remove_folders(token)
        (self._data / "started" / token).unlink(missing_ok=True)
        self.shared.sweep()

    def _remove_folders(self, token: str) -> None:
        for folder in (self.job(token), self.node(token), self.home(token)):
            if folder.exists():
                shutil.rmtree(folder)


def _taken_out(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    path.unlink()
    return content


def _opened(folder: Path, names: list[str], owner: int | None) -> list[Item]:
    items = []
    for name in names:
        with contextlib.suppress(OSError):
            items.append(open_below(folder, name, owner))
    return items


def _owner(folder: Path) -> int | None:
    try:
        return folder.lstat().st_uid
    except OSError:
        return None


__all__ = ["BadArchive", "Folders"]
