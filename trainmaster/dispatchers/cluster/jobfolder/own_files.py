"""Opens folders and reads and writes files that must be this account's own, by descriptors and through no link.

It is part of the helper program as well: Python 3.8 and its standard library only, and nothing of this package.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import BinaryIO, Optional, Sequence

TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
SUBFOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RequestRefused(Exception):
    """The request is not allowed; repeating it will not help."""


class RequestFailed(Exception):
    """The request could not be carried out this time."""


def descend(descriptor: int, parts: Sequence[str], make: bool = False) -> int:
    """Open the folder at `parts` below a folder, through no link; closes the first descriptor."""
    for part in parts:
        try:
            if make:
                try:
                    os.mkdir(part, 0o700, dir_fd=descriptor)
                except FileExistsError:
                    pass
            inner = os.open(part, SUBFOLDER, dir_fd=descriptor)
            if make and os.fstat(inner).st_uid != os.geteuid():
                os.close(inner)
                raise RequestFailed("the folder %s in the job folder belongs to another account" % part)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def replace_in(folder: int, name: str, content: bytes, mode: int, draft: str = "") -> None:
    """Write a file of an opened folder in one step. `draft`: the name of the unfinished file; unique where several
    processes may write the file at once."""
    draft = draft or ".%s.draft" % name
    try:
        os.unlink(draft, dir_fd=folder)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, mode, dir_fd=folder), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())  # a node that reads over NFS must not see an empty file (nextflow#4154)
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def own_file(folder: int, name: str) -> Optional[BinaryIO]:
    """Open the user's own plain file; None for anything else."""
    try:
        file = open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder), "rb")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
            return None  # missing, a link, not readable, or a socket: jobs write none of these
        raise
    facts = os.fstat(file.fileno())
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
        file.close()
        return None
    return file
