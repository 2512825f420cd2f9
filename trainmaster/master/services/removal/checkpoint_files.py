"""Packs a checkpoint's files into an archive, for users who cannot reach its storage themselves.

From an object store they are passed on as they are read. In a folder no link is followed, and files must belong to the
account whose jobs wrote them, so that nobody gets through this master what they could not read themselves.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Literal, Protocol

from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.db.tables import Checkpoint
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Forbidden, NotFound, Unavailable
from trainmaster.master.services.experiments.trials import Trials
from trainmaster.master.services.files import user_files
from trainmaster.master.services.files.user_files import NoFolder, StoredPrefix, UserFiles
from trainmaster.storage.contract import ObjectStore, StorageFault

Form = Literal["tgz", "tar", "zip"]
BLOCK = 1 << 18  # bytes


@dataclass(frozen=True)
class ArchiveEntry:
    """A file, a link or a folder."""

    name: str
    mode: int
    modified: float  # epoch seconds
    size: int = 0
    file: IO[bytes] | None = None  # of a regular file
    target: str = ""  # of a link


class CheckpointSource(Protocol):
    """A checkpoint's files, opened; `archive` closes them."""

    def entries(self) -> Iterator[ArchiveEntry]:
        """Yield what there is. Raises OSError, StorageFault, trees.Untouched, trees.Unfinished."""

    def close(self) -> None:
        """Let go of them."""


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint's opened folder."""

    descriptor: int
    rules: trees.Rules

    def entries(self) -> Iterator[ArchiveEntry]:
        for entry in trees.entries(self.descriptor, self.rules):
            mode, modified = stat.S_IMODE(entry.status.st_mode), entry.status.st_mtime
            if trees.is_folder(entry):
                yield ArchiveEntry(entry.path, mode, modified)
            elif stat.S_ISLNK(entry.status.st_mode):
                target = os.readlink(entry.name, dir_fd=entry.folder)
                if _stays(entry.path, target):
                    yield ArchiveEntry(entry.path, mode, modified, target=target)
            elif stat.S_ISREG(entry.status.st_mode):
                with os.fdopen(trees.open_file(entry, self.rules), "rb") as file:
                    yield ArchiveEntry(entry.path, mode, modified, os.fstat(file.fileno()).st_size, file)

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True)
class CheckpointObjects:
    """A checkpoint's objects in a store. `names`: those that are the checkpoint's."""

    store: ObjectStore
    prefix: str
    names: frozenset[str]

    def entries(self) -> Iterator[ArchiveEntry]:
        for stored in self.store.list(self.prefix):
            name = stored.key.removeprefix(self.prefix)
            if name in self.names:
                file = io.BufferedReader(_Content(self.store.read(stored.key)), BLOCK)
                yield ArchiveEntry(name, 0o644, stored.modified, stored.size, file)

    def close(self) -> None:
        return


class _Content(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = block
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class CheckpointArchives(BoundService):
    """Checkpoints' files as archives."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)
        self._trials = Trials(master)

    def open(self, key: str) -> CheckpointSource:
        """Open the files of a checkpoint.

        Raises NotFound, Conflict when its files were deleted, Unavailable when this master does not see them, Forbidden
        when it may not read them.
        """
        row = with_files(self._trials, key)
        try:
            with self._store.transaction() as session:
                place = user_files.of_checkpoint(session, self._settings, row)
            if isinstance(place, StoredPrefix):
                return CheckpointObjects(self._files.store_of(place), place.key, frozenset(row.resources))
            return CheckpointFolder(*self._files.open(place))
        except NoFolder as error:
            raise Unavailable(f"{error} Fetch checkpoint {key} from its storage yourself.") from None
        except FileNotFoundError:
            raise NotFound(
                f"The files of checkpoint {key} are not in {place.folder}, as this master sees it."
            ) from None
        except PermissionError:
            text = f"This master may not read {place.folder}: fetch checkpoint {key} from there yourself."
            raise Forbidden(text) from None
        except OSError as error:
            raise Unavailable(f"{place.folder} cannot be read: {error.strerror}.") from error


def with_files(trials: Trials, key: str) -> Checkpoint:
    """Return a checkpoint that has files. Raises NotFound, Invalid, Conflict."""
    row = trials.get_checkpoint(key).row
    if row.state not in ("COMPLETED", "PARTIALLY_DELETED"):
        raise Conflict(f"Checkpoint {key} is {row.state}: it has no files.")
    return row


def archive(source: CheckpointSource, form: Form) -> Iterator[bytes]:
    """Yield the archive, piece by piece. A file that cannot be read ends it early, which the reader of the archive
    sees."""
    read, write = os.pipe()
    writer = threading.Thread(target=_write, args=(source, form, write), name="checkpoint-archive", daemon=True)
    writer.start()
    try:
        while block := os.read(read, BLOCK):
            yield block
    finally:
        os.close(read)  # the writer finds the pipe closed and ends
        writer.join()
        source.close()


def _write(source: CheckpointSource, form: Form, write: int) -> None:
    with contextlib.suppress(OSError, StorageFault, trees.Untouched, trees.Unfinished), os.fdopen(write, "wb") as pipe:
        if form == "zip":
            _write_zip(source, pipe)
        else:
            _write_tar(source, pipe, "w|gz" if form == "tgz" else "w|")


def _write_tar(source: CheckpointSource, pipe: IO[bytes], mode: Literal["w|", "w|gz"]) -> None:
    with tarfile.open(fileobj=pipe, mode=mode) as opened:
        for entry in source.entries():
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime = entry.mode & 0o755 | 0o600, int(entry.modified)
            if entry.file is not None:
                info.size = entry.size
            elif entry.target:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            opened.addfile(info, entry.file)


def _write_zip(source: CheckpointSource, pipe: IO[bytes]) -> None:
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as opened:
        for entry in source.entries():
            when = time.localtime(max(entry.modified, 315_619_200))  # ZIP has no year before 1980
            if entry.file is not None:
                info = zipfile.ZipInfo(entry.name, when[:6])
                info.file_size = entry.size
                with opened.open(info, "w") as target:
                    while block := entry.file.read(BLOCK):
                        target.write(block)
            elif not entry.target:
                opened.writestr(zipfile.ZipInfo(f"{entry.name}/", when[:6]), b"")


def _stays(place: str, target: str) -> bool:
    """Whether a link leads to a place inside the folder."""
    reached = PurePosixPath(os.path.normpath(os.path.join(os.path.dirname(place), target)))
    return not os.path.isabs(target) and reached.parts[:1] != ("..",)
