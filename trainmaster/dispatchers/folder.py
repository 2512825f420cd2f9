"""The job folder `<job_root>/<token>/`: stage it, read what the job left in it, remove it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trainmaster.dispatchers.base import Rejected, Remains, StagedFile, Transient

TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
OUTPUT = "output.txt"
TAIL_BYTES = 64 * 1024
MAX_EXIT_RECORD = 1024 * 1024  # bytes; a larger file is not one of ours


class JobFolder:
    """The folder of one job. It belongs to the job's user and nobody else may enter it."""

    def __init__(self, root: Path, token: str) -> None:
        """Raises Rejected when `token` could name anything but a folder directly below `root`."""
        if not TOKEN.fullmatch(token):
            raise Rejected(
                f"{token!r} is not a job token (a letter, then letters, digits, '_', '.' or '-')", token=token
            )
        self.token = token
        self.path = root / token

    def stage(self, files: Mapping[str, StagedFile]) -> None:
        """Make the folder and write `files` into it. Doing it again gives the same result.

        Raises Rejected for a path that leaves the folder, Transient when the disk refuses.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for name in ("spool", "exit"):
                (self.path / name).mkdir(mode=0o700, exist_ok=True)
            for name, file in files.items():
                self._write(name, file)
        except OSError as error:
            raise Transient(
                f"The job folder {self.path} cannot be written: {error.strerror}.", token=self.token
            ) from error

    def _write(self, name: str, file: StagedFile) -> None:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts:
            raise Rejected(f"The staged file {name!r} would stand outside the job folder.", token=self.token)
        target = self.path.joinpath(*parts)
        for parent in reversed(target.relative_to(self.path).parents[:-1]):
            (self.path / parent).mkdir(mode=0o700, exist_ok=True)
        draft = target.with_name(f".{target.name}.draft")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file.mode)
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(descriptor, file.mode)
            handle.write(file.content)
            handle.flush()
            # A node that reads over NFS must not see an empty file (nextflow#4154).
            os.fsync(descriptor)
        draft.replace(target)

    @property
    def output(self) -> Path:
        return self.path / OUTPUT

    def collect(self) -> Remains:
        """Exit records, report streams and the end of the output; empty when there is nothing."""
        exits: dict[int, bytes] = {}
        for file in sorted(self.path.glob("exit/*.json")):
            if file.stem.isdigit():
                with contextlib.suppress(OSError):
                    exits[int(file.stem)] = _read(file, 0, MAX_EXIT_RECORD)
        streams: dict[str, bytes] = {}
        for file in sorted(self.path.glob("spool/*.jsonl")):
            with contextlib.suppress(OSError):
                streams[file.stem] = _read(file)
        return Remains(exits=exits, streams=streams, output_tail=self.tail())

    def tail(self) -> str:
        """The last part of what the scheduler captured, at most TAIL_BYTES."""
        try:
            size = self.output.stat().st_size
            return _read(self.output, max(0, size - TAIL_BYTES)).decode(errors="replace")
        except OSError:
            return ""

    def forget(self) -> None:
        """Remove the folder. Links in it are removed, never followed. Raises Transient when something stays."""
        for _ in range(2):
            shutil.rmtree(self.path, ignore_errors=True)
        if self.path.is_symlink() or self.path.exists():
            raise Transient(f"The job folder {self.path} could not be removed completely.", token=self.token)


def _read(path: Path, offset: int = 0, limit: int = -1) -> bytes:
    """Read a file that the job's user may have tampered with: a link or a pipe is an error, not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as handle:
        handle.seek(offset)
        return handle.read(limit)
