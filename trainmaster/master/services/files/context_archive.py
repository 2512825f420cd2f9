"""Builds the archive that a job unpacks from the files that a client sends."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import tarfile
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainmaster.master.services.errors import Invalid, TooLarge

MAX_ENTRIES = 100_000
# Linux allows 255 and 4096; the path is below the job's own folder.
LONGEST_NAME, LONGEST_PATH = 255, 2048  # bytes

_TYPES = {ord(tarfile.REGTYPE): tarfile.REGTYPE, 0: tarfile.REGTYPE, ord(tarfile.DIRTYPE): tarfile.DIRTYPE}
_REFUSED = {
    ord(tarfile.LNKTYPE): "a hard link",
    ord(tarfile.SYMTYPE): "a symbolic link",
    ord(tarfile.CHRTYPE): "a device",
    ord(tarfile.BLKTYPE): "a device",
    ord(tarfile.FIFOTYPE): "a pipe",
}
_IGNORE = "List what the training does not need in .detignore."


@dataclass(frozen=True)
class ContextFile:
    """As Determined's clients send it: `content` is base64, `type` the tar type's character code."""

    path: str
    type: int
    content: str
    mtime: int
    mode: int


def pack(files: Sequence[ContextFile], limit: int) -> bytes:
    """Return a gzipped tar with the files, empty bytes for none. The same files give the same bytes.

    Args:
        limit: bytes that the files may have together before they are compressed.

    Raises Invalid (a path that leaves the folder or that no file can have, two files of one name, what is neither a
    file nor a folder, broken base64) and TooLarge, each with the path.
    """
    entries = _entries(files)
    if not entries:
        return b""
    total = 0
    buffer = io.BytesIO()
    packed = gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, (kind, file) in entries.items():
            info = tarfile.TarInfo(path)
            info.type = kind
            info.mode = file.mode & 0o777
            info.mtime = file.mtime
            data = _decoded(file) if kind == tarfile.REGTYPE else b""
            total += len(data)
            if total > limit:
                raise TooLarge(
                    f"{path}: with this file the experiment's folder is over the limit of {limit // 2**20} MB. "
                    f"{_IGNORE}"
                )
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data else None)
    return buffer.getvalue()


def _entries(files: Sequence[ContextFile]) -> dict[str, tuple[bytes, ContextFile]]:
    """Return the archive's entries with their paths and tar types, in the order given. Raises Invalid, TooLarge."""
    entries: dict[str, tuple[bytes, ContextFile]] = {}
    for file in files:
        path = _checked(file.path)
        kind = _TYPES.get(file.type)
        if kind is None:
            what = _REFUSED.get(file.type, f"of the tar type {file.type}")
            raise Invalid(f"{file.path} is {what}; only files and folders can be sent with an experiment.")
        if path == ".":
            if kind == tarfile.REGTYPE:
                raise Invalid(f"{file.path!r}: this names the experiment's folder, and cannot be a file in it.")
            continue
        if path not in entries:
            entries[path] = kind, file
        elif kind == tarfile.REGTYPE or entries[path][0] == tarfile.REGTYPE:
            raise Invalid(f"{file.path} comes twice; each file needs a name of its own.")
        if len(entries) > MAX_ENTRIES:
            raise TooLarge(
                f"{file.path}: with this one the experiment's folder has more than {MAX_ENTRIES} files and folders. "
                f"{_IGNORE}"
            )
    _refuse_files_as_folders(entries)
    return entries


def _refuse_files_as_folders(entries: dict[str, tuple[bytes, ContextFile]]) -> None:
    folders: set[str] = set()
    for path in entries:
        above = path.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            if above in entries and entries[above][0] == tarfile.REGTYPE:
                raise Invalid(f"{path} would lie in {above}, which is a file.")
            above = above.rpartition("/")[0]


def _checked(path: str) -> str:
    """Return the normalized path for tar. Raises Invalid; the message shows unprintable characters as escapes."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        raise Invalid(f"{path!r}: a file's path must be relative and stay inside the experiment's folder.")
    if odd := next((c for c in path if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None):
        raise Invalid(f"{path!a}: a file's path must be of printable characters; {odd!a} is none.")
    if len(path.encode()) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in pure.parts):
        raise Invalid(
            f"{path[:60]}...: a file's path may have {LONGEST_PATH} bytes, and each name in it {LONGEST_NAME}."
        )
    return str(pure)


def _decoded(file: ContextFile) -> bytes:
    try:
        return base64.b64decode(file.content, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{file.path}: its content is not valid base64.") from None
