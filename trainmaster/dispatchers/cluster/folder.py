"""Stages, reads and removes the job folder `<job_root>/<token>/` in this process, for jobs of the master's own account.

The functions of `jobfolder.job_files` do the work; they also run as the job's user, in the helper program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainmaster.containers import ContainerRuntime
from trainmaster.dispatchers.base import (
    JobFile,
    NotStarted,
    Rejected,
    Remains,
    SharedFile,
    StagedFile,
    StreamPiece,
    StreamPosition,
    Transient,
)
from trainmaster.dispatchers.cluster.jobfolder import job_files, own_files, shared_files

TOKEN = own_files.TOKEN
OUTPUT = job_files.OUTPUT
TAIL_BYTES = job_files.TAIL
ROUNDS = 4  # of staging: one finds what is missing, one brings it; more if it is removed in between
T = TypeVar("T")


def check_token(token: str, prefix: str = "") -> str:
    """Return `token` if it names a folder directly below the job root and begins with `prefix`, as the tokens of a
    master's own jobs do. Raises Rejected."""
    if not TOKEN.fullmatch(token):
        raise Rejected(f"{token!r} is not a job token (a letter, then letters, digits, '_', '.' or '-')", token=token)
    if not token.startswith(prefix):
        raise Rejected(f"The token {token!r} does not begin with {prefix!r}.", token=token)
    return token


def check_names(token: str, files: Mapping[str, JobFile]) -> None:
    """Raise Rejected for a staged file that would leave the job folder."""
    for name in files:
        if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise Rejected(f"The staged file {name!r} would be outside the job folder.", token=token)


def cache_dir_of(account: str | int) -> str:
    """Return the name of the folder in the job root that holds the shared files of an account, by its name or uid."""
    return ".shared-" + re.sub(r"[^A-Za-z0-9_.-]", "_", str(account))[:64]


def shared_folders(root: Path, cache_dir: str, files: Mapping[str, JobFile]) -> list[Path]:
    """Return the folders that links in the job folder lead to, one a file; a container must see them, read-only."""
    return [root / cache_dir / file.sha256 for file in files.values() if isinstance(file, SharedFile)]


def parted(files: Mapping[str, JobFile]) -> tuple[dict[str, StagedFile], dict[str, SharedFile]]:
    """Return the files of the job's own, and those that it has in common with others."""
    own = {name: file for name, file in files.items() if isinstance(file, StagedFile)}
    return own, {name: file for name, file in files.items() if isinstance(file, SharedFile)}


def copied(files: Mapping[str, JobFile]) -> dict[str, JobFile]:
    """Return the files of a job folder that shares none."""
    return {name: file for name, file in files.items() if not (isinstance(file, SharedFile) and file.optional)}


def stage_in_rounds(
    shared: Mapping[str, SharedFile], stage: Callable[[Mapping[str, bytes]], Collection[str] | None]
) -> bool:
    """Call `stage` with the content of shared files that it asked for, by name, until it asks for none. Returns False
    when nothing can be shared there (it returned None), or the files do not stay."""
    content: dict[str, bytes] = {}
    for _ in range(ROUNDS):
        missing = stage(content)
        if not missing:
            return missing is not None
        content = {name: shared[name].content for name in missing}
    return False


def piece_of(content: bytes, line: int, offset: int, more: bool, cut: bool) -> StreamPiece:
    """Convert the helper's answer on a stream."""
    return StreamPiece(content, StreamPosition(line, offset), more, cut)


class JobFolder:
    """The folder of one job. It belongs to the job's user, and no other account may enter it."""

    def __init__(self, root: Path, token: str) -> None:
        """Check the token. Raises Rejected when it could name anything but a folder directly below `root`."""
        self.token = check_token(token)
        self.path = root / token

    @property
    def cache_dir(self) -> str:
        return cache_dir_of(os.geteuid())

    def shared_folders(self, files: Mapping[str, JobFile]) -> list[Path]:
        """As the function `shared_folders`."""
        return shared_folders(self.path.parent, self.cache_dir, files)

    def stage_sharing(self, files: Mapping[str, JobFile]) -> None:
        """As `stage`, with links to the shared files among them, which are stored once for all jobs of this account.
        The caller mounts `shared_folders` into containers."""
        own, shared = parted(files)
        check_names(self.token, files)
        contents = {name: (file.content, file.mode) for name, file in own.items()}

        def stage(known: Mapping[str, bytes]) -> list[str] | None:
            wanted = {name: shared_files.SharedContent(file.sha256, known.get(name)) for name, file in shared.items()}

            def once() -> list[str] | None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    return job_files.stage(self._root, self.token, contents, None, self.cache_dir, wanted)
                except job_files.NotShared:
                    return None

            return self._do(once, "cannot be written")

        if not stage_in_rounds(shared, stage):
            self.stage(files)

    def stage(self, files: Mapping[str, JobFile]) -> None:
        """Make the folder and write `files` into it. Doing it again gives the same result.

        Raises Rejected for a path that leaves the folder, Transient when the disk fails or the folder
        belongs to another account.
        """
        check_names(self.token, files)
        contents = {name: (file.content, file.mode) for name, file in copied(files).items()}

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
        except (own_files.RequestFailed, own_files.RequestRefused) as error:
            raise Transient(f"The job folder {self.path} {what}: {error}.", token=self.token) from error


def with_cause(remains: Remains, runtime: ContainerRuntime) -> Remains:
    """Return `remains` with the reason added, if the job left no exit record and its output shows one."""
    if remains.exits or not remains.output_tail or (cause := runtime.explain(remains.output_tail)) is None:
        return remains
    return replace(remains, not_started=NotStarted(cause.text, cause.final, cause.uncharged))
