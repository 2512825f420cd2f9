"""Packs a checkpoint's files into an archive, for users who cannot reach its storage themselves.

No link is followed, and files must belong to the account whose jobs wrote them, so that nobody gets through this
master what they could not read themselves.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Literal

from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Forbidden, NotFound, Unavailable
from trainmaster.master.services.experiments.trials import Trials
from trainmaster.master.services.files import user_files
from trainmaster.master.services.files.user_files import NoFolder, UserFiles

Form = Literal["tgz", "tar", "zip"]
BLOCK = 1 << 18  # bytes


@dataclass(frozen=True)
class CheckpointFolder:
    """A checkpoint's opened folder; its reader closes it."""

    descriptor: int
    rules: trees.Rules


@dataclass(frozen=True)
class _Entry:
    name: str
    status: os.stat_result
    file: IO[bytes] | None = None  # of a regular file
    target: str = ""  # of a link


class CheckpointArchives(BoundService):
    """Checkpoints' files as archives."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)
        self._trials = Trials(master)

    def open_folder(self, key: str) -> CheckpointFolder:
        """Open the folder of a checkpoint.

        Raises NotFound, Conflict when its files were deleted, Unavailable when this master does not see them, Forbidden
        when it may not read them.
        """
        row = self._trials.get_checkpoint(key).row
        if row.state not in ("COMPLETED", "PARTIALLY_DELETED"):
            raise Conflict(f"Checkpoint {key} is {row.state}: it has no files.")
        try:
            with self._store.transaction() as session:
                place = user_files.of_checkpoint(session, self._settings, row)
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


def archive(folder: CheckpointFolder, form: Form) -> Iterator[bytes]:
    """Yield the archive, piece by piece. A file that cannot be read ends it early, which the reader of the archive
    sees."""
    read, write = os.pipe()
    writer = threading.Thread(target=_write, args=(folder, form, write), name="checkpoint-archive", daemon=True)
    writer.start()
    try:
        while block := os.read(read, BLOCK):
            yield block
    finally:
        os.close(read)  # the writer finds the pipe closed and ends
        writer.join()
        os.close(folder.descriptor)


def _write(folder: CheckpointFolder, form: Form, write: int) -> None:
    with contextlib.suppress(OSError, trees.Untouched, trees.Unfinished), os.fdopen(write, "wb") as pipe:
        if form == "zip":
            _write_zip(folder, pipe)
        else:
            _write_tar(folder, pipe, "w|gz" if form == "tgz" else "w|")


def _write_tar(folder: CheckpointFolder, pipe: IO[bytes], mode: Literal["w|", "w|gz"]) -> None:
    with tarfile.open(fileobj=pipe, mode=mode) as opened:
        for entry in _entries(folder):
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime = stat.S_IMODE(entry.status.st_mode) & 0o755 | 0o600, int(entry.status.st_mtime)
            if entry.file is not None:
                info.size = entry.status.st_size
            elif entry.target:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            opened.addfile(info, entry.file)


def _write_zip(folder: CheckpointFolder, pipe: IO[bytes]) -> None:
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as opened:
        for entry in _entries(folder):
            when = time.localtime(max(entry.status.st_mtime, 315_619_200))  # ZIP has no year before 1980
            if entry.file is not None:
                info = zipfile.ZipInfo(entry.name, when[:6])
                info.file_size = entry.status.st_size
                with opened.open(info, "w") as target:
                    while block := entry.file.read(BLOCK):
                        target.write(block)
            elif not entry.target:
                opened.writestr(zipfile.ZipInfo(f"{entry.name}/", when[:6]), b"")


def _entries(folder: CheckpointFolder) -> Iterator[_Entry]:
    for entry in trees.entries(folder.descriptor, folder.rules):
        if trees.is_folder(entry):
            yield _Entry(entry.path, entry.status)
        elif stat.S_ISLNK(entry.status.st_mode):
            target = os.readlink(entry.name, dir_fd=entry.folder)
            if _stays(entry.path, target):
                yield _Entry(entry.path, entry.status, target=target)
        elif stat.S_ISREG(entry.status.st_mode):
            with os.fdopen(trees.open_file(entry, folder.rules), "rb") as file:
                yield _Entry(entry.path, os.fstat(file.fileno()), file)


def _stays(place: str, target: str) -> bool:
    """Whether a link leads to a place inside the folder."""
    reached = PurePosixPath(os.path.normpath(os.path.join(os.path.dirname(place), target)))
    return not os.path.isabs(target) and reached.parts[:1] != ("..",)
