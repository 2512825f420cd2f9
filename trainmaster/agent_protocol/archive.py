"""Tar archives of a job's files for the way between master and agents; the reader does not trust the writer."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from trainmaster.files import replace_file

BLOCK = 2**18  # bytes
MAX_NAME = 512  # characters of a path below the job folder
MAX_FILES = 10_000


class BadArchive(ValueError):
    """An archive that no correct agent or master writes; the message says what is wrong with it."""


@dataclass(frozen=True)
class Item:
    """A file for an archive. `handle` is read to `size` and closed."""

    name: str
    size: int
    mode: int
    handle: IO[bytes]


def open_below(folder: Path, name: str, owner: int | None = None) -> Item:
    """Open a plain file below a folder that another account may be changing: no link in its path is followed, and a
    file of another owner is refused. Raises OSError."""
    *parents, last = name.split("/")
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or (owner is not None and status.st_uid != owner):
        os.close(file)
        raise OSError(f"{name} is not a plain file of the job")
    return Item(name, status.st_size, stat.S_IMODE(status.st_mode), os.fdopen(file, "rb"))


def list_below(folder: Path, below: str) -> list[str]:
    """List the names in the subfolder `below`; empty when it does not exist or is a link."""
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        inner = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
    except OSError:
        return []
    finally:
        os.close(here)
    try:
        return sorted(os.listdir(inner))
    finally:
        os.close(inner)


def content(name: str, data: bytes) -> Item:
    """Return an item with this content, without a file on disk."""
    return Item(name, len(data), 0o600, io.BytesIO(data))


def pack(items: Iterable[Item]) -> Iterator[bytes]:
    """Yield the archive in pieces. A file that shrinks while it is read is padded with zeros."""
    for item in items:
        with item.handle:
            header = tarfile.TarInfo(item.name)
            header.size, header.mode = item.size, item.mode & 0o700
            yield header.tobuf(tarfile.PAX_FORMAT)
            left = item.size
            while left:
                piece = item.handle.read(min(left, BLOCK)) or bytes(min(left, BLOCK))
                left -= len(piece)
                yield piece
            yield bytes(-item.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def unpack(source: IO[bytes], folder: Path, allowed: Sequence[str], limit: int) -> list[str]:
    """Write an archive's files below `folder`, which no other account can enter; return their names.

    Args:
        allowed: folders (`spool/`) and files (`output.txt`) that the archive may hold; `""` allows everything.
        limit: bytes in all.

    Raises:
        BadArchive: for links, devices, paths that leave the folder or are not allowed, too many files or too many
        bytes.
    """
    names: list[str] = []
    left = limit
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                _check(member, allowed)
                left -= member.size
                if left < 0 or len(names) >= MAX_FILES:
                    raise BadArchive(f"the archive holds more than {limit} bytes or {MAX_FILES} files")
                data = archive.extractfile(member)
                if data is None:
                    raise BadArchive(f"{member.name!r} has no content")
                _write(folder, member.name, member.mode & 0o700, data)
                names.append(member.name)
    except (tarfile.TarError, EOFError) as error:
        raise BadArchive(f"the archive cannot be read: {error}") from None
    return names


def _check(member: tarfile.TarInfo, allowed: Sequence[str]) -> None:
    name = member.name
    if not member.isreg():
        raise BadArchive(f"{name!r} is not a plain file")
    parts = name.split("/")
    odd = any(ord(character) < 32 or ord(character) == 127 for character in name)
    if odd or len(name) > MAX_NAME or any(part in ("", ".", "..") for part in parts):
        raise BadArchive(f"{name!r} is not a path below the job folder")
    if not any(name == entry or (entry.endswith("/") and name.startswith(entry)) or not entry for entry in allowed):
        raise BadArchive(f"{name!r} is not expected")


def _write(folder: Path, name: str, mode: int, data: IO[bytes]) -> None:
    target = folder / name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(target, iter(partial(data.read, BLOCK), b""), mode)
