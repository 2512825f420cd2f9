"""Files that many jobs on this host have in common: <data>/shared/<SHA-256>/<name>, with a link in each job folder.

They belong to the agent, and containers see them read-only, so that no job can change another one's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from trainmaster.agent_protocol.archive import BadArchive

UNUSED = 3600.0  # seconds since a file was last given to a job, after which it may be removed
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class SharedFiles:
    """The shared files of one agent. Thread-safe: a file appears in one step, and is not removed soon after a use."""

    def __init__(self, root: Path, jobs: Path) -> None:
        self._root, self._jobs = root, jobs
        root.mkdir(exist_ok=True)

    def folder(self, sha256: str) -> Path:
        return self._root / sha256

    def standing(self, wanted: Mapping[str, str]) -> list[str]:
        """Return which of the files, given as name -> SHA-256, are here and whole. They stay for UNUSED seconds."""
        names = []
        for name, sha256 in wanted.items():
            if _is_valid(name, sha256) and _digest(self.folder(sha256) / name) == sha256:
                os.utime(self.folder(sha256))
                names.append(name)
        return names

    def take(self, job: Path, wanted: Mapping[str, str]) -> None:
        """Move the files out of a new job folder, if they came with it, and leave links to them. Raises BadArchive,
        OSError."""
        for name, sha256 in wanted.items():
            if not _is_valid(name, sha256):
                raise BadArchive(f"{name!r} cannot be the name of a shared file")
            came, place = job / name, self.folder(sha256)
            if came.exists():
                if _digest(came) != sha256:
                    raise BadArchive(f"{name} is not the file that its order names")
                place.mkdir(exist_ok=True)
                place.chmod(0o755)  # whatever the umask: containers see it as the accounts of jobs
                came.chmod(0o444)
                came.replace(place / name)
                os.utime(place)
            elif not (place / name).exists():
                raise BadArchive(f"{name} is missing")
            came.symlink_to(place / name)

    def sweep(self) -> None:
        """Remove what no job has a link to and none was given for UNUSED seconds."""
        now = time.time()
        for place in self._root.iterdir():
            if now - place.stat().st_mtime > UNUSED and not any(map(self._is_linked, place.iterdir())):
                shutil.rmtree(place, ignore_errors=True)

    def _is_linked(self, file: Path) -> bool:
        return any(_target(job / file.name) == str(file) for job in self._jobs.iterdir())


def _is_valid(name: str, sha256: str) -> bool:
    return _NAME.fullmatch(name) is not None and _SHA256.fullmatch(sha256) is not None


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
