"""Unpacks an archive of the user's files, which is not trusted. Stricter than `tarfile.data_filter`, which renames
absolute paths, has no limit of size, and does not see links that lead out only in a chain."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from typing import List, Tuple

from trainmaster.runtime.context_entries import entry_path, set_mode_and_time
from trainmaster.runtime.errors import BadContext

MAX_BYTES = 4 * 1024**3  # unpacked; the master limits the packed size
MAX_ENTRIES = 200_000
MAX_PADDING = 1 << 20  # bytes after the last entry; tar fills up to 10240
# Besides its own errors, tarfile lets those of what it reads and of numbers and names in headers through.
_BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError)


def unpack_context(packed: bytes, target: str, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> int:
    """Unpack a tar.gz into the existing empty folder `target`; returns the number of entries.

    Links are made after all files, so that nothing can be written through one, and each must lead to a place
    inside the folder. Raises BadContext with a sentence that names the entry.
    """
    if not packed:
        return 0
    root = os.path.realpath(target)
    links: List[Tuple[str, tarfile.TarInfo]] = []
    left = max_bytes
    entries = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as plain, tarfile.open(fileobj=plain, mode="r:") as archive:
            for entry in archive:
                entries += 1
                if entries > max_entries:
                    raise BadContext("the context has more than %d entries" % max_entries)
                if entry.size < 0:  # tarfile would go backwards, and on for ever
                    raise BadContext("the context entry %r has a size below zero" % entry.name)
                name = entry_path(entry.name, "entry")
                path = os.path.join(root, name)
                if entry.isdir():
                    os.makedirs(path, exist_ok=True)
                elif entry.isreg():
                    left -= entry.size
                    if left < 0:
                        raise BadContext("the context unpacks to more than %d bytes" % max_bytes)
                    _write(archive, entry, path)
                elif entry.issym() or entry.islnk():
                    links.append((name, entry))
                else:
                    raise BadContext("the context holds %r, which is a device or a pipe" % entry.name)
            # tarfile stops before the padding; gzip's checksum comes after it.
            if len(plain.read(MAX_PADDING)) == MAX_PADDING:
                raise BadContext("the context archive continues after its end")
            _link(root, links)
    except _BROKEN as error:
        raise BadContext("the context cannot be unpacked: %s" % error) from error
    return entries


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = archive.extractfile(entry)
    assert source is not None  # a regular file has content
    # A name that comes twice replaces itself, as tar does; no link exists yet that could be followed.
    with source, open(path, "wb") as file:
        while True:
            block = source.read(1 << 20)
            if not block:
                break
            file.write(block)
    set_mode_and_time(path, entry.mode, entry.mtime)


def _link(root: str, links: List[Tuple[str, tarfile.TarInfo]]) -> None:
    for name, entry in links:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Earlier links may stand in the way to this one.
        if not _within(root, os.path.realpath(os.path.dirname(path))):
            raise BadContext("the context entry %r leads out of the context" % entry.name)
        if entry.islnk():
            source = os.path.join(root, entry_path(entry.linkname, "link target"))
            if os.path.islink(source) or not os.path.isfile(source):
                raise BadContext("the context link %r leads to no file: %r" % (entry.name, entry.linkname))
            os.link(source, path)
        else:
            if os.path.isabs(entry.linkname):
                raise BadContext("the context link %r leads out of the context" % entry.name)
            os.symlink(entry.linkname, path)
    for name, entry in links:
        # Only now do all links stand: a chain of them may lead where none of them does.
        if not _within(root, os.path.realpath(os.path.join(root, name))):
            raise BadContext("the context link %r leads out of the context" % entry.name)


def _within(root: str, path: str) -> bool:
    return path == root or path.startswith(root + os.sep)
