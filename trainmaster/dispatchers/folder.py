"""Stages, reads and removes the job folder `<job_root>/<token>/` in this process, for jobs of the master's own account.

The functions of `jobfolder.job_files` do the work; they also run as the job's user, in the helper program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from trainmaster.dispatchers.base import Rejected, Remains, StagedFile, StreamPiece, StreamPosition, Transient
from trainmaster.dispatchers.jobfolder import job_files

TOKEN = job_files.TOKEN
OUTPUT = job_files.OUTPUT
TAIL_BYTES = job_files.TAIL
T = TypeVar("T")


def check_token(token: str, prefix: str = "") -> str:
    """Return `token` if it names a folder directly below the job root and begins with `prefix`, as the tokens of a
    master's own jobs do. Raises Rejected."""
    if not TOKEN.fullmatch(token):
        raise Rejected(f"{token!r} is not a job token (a letter, then letters, digits, '_', '.' or '-')", token=token)
    if not token.startswith(prefix):
        raise Rejected(f"The token {token!r} does not begin with {prefix!r}.", token=token)
    return token


def check_names(token: str, files: Mapping[str, StagedFile]) -> None:
    """Raises Rejected for a staged file that would leave the job folder."""
    for name in files:
        if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise Rejected(f"The staged file {name!r} would be outside the job folder.", token=token)


def piece_of(content: bytes, line: int, offset: int, more: bool, cut: bool) -> StreamPiece:
    """Convert the helper's answer on a stream."""
    return StreamPiece(content, StreamPosition(line, offset), more, cut)


class JobFolder:
    """The folder of one job. It belongs to the job's user, and no other account may enter it."""

    def __init__(self, root: Path, token: str) -> None:
        """Raises Rejected when `token` could name anything but a folder directly below `root`."""
        self.token = check_token(token)
        self.path = root / token

    def stage(self, files: Mapping[str, StagedFile]) -> None:
        """Make the folder and write `files` into it. Doing it again gives the same result.

        Raises Rejected for a path that leaves the folder, Transient when the disk fails or the folder
        belongs to another account.
        """
        check_names(self.token, files)
        contents = {name: (file.content, file.mode) for name, file in files.items()}

        def stage() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            job_files.stage(self._root, self.token, contents)

        self._do(stage, "cannot be written")

    @property
    def output(self) -> Path:
        return self.path / OUTPUT

    def collect(self, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30) -> Remains:
        """Exit records, report streams from `places` on (as `Dispatcher.collect`), and the end of the output; empty
        when there is nothing. Raises Transient."""
        known = None if places is None else {name: (place.line, place.offset) for name, place in places.items()}
        left = self._do(lambda: job_files.collect(self._root, self.token, None, known, most), "cannot be read")
        output = None if left.output_tail is None else left.output_tail.decode(errors="replace")
        return Remains(left.exits, {name: piece_of(*piece) for name, piece in left.streams.items()}, output)

    def tail(self) -> str:
        """Return the end of the output that the scheduler captured, at most TAIL_BYTES."""
        left = self._do(lambda: job_files.tail(self._root, self.token, TAIL_BYTES), "cannot be read")
        return left.decode(errors="replace")

    def forget(self) -> None:
        """Remove the folder. Links in it are removed, never followed. Raises Transient when something stays."""
        self._do(lambda: job_files.forget(self._root, self.token), "could not be removed completely")

    @property
    def _root(self) -> str:
        return os.path.abspath(self.path.parent)

    def _do(self, work: Callable[[], T], what: str) -> T:
        try:
            return work()
        except OSError as error:
            reason = error.strerror or str(error)
            raise Transient(f"The job folder {self.path} {what}: {reason}.", token=self.token) from error
        except (job_files.RequestFailed, job_files.RequestRefused) as error:
            raise Transient(f"The job folder {self.path} {what}: {error}.", token=self.token) from error
