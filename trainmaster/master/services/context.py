"""The user's files: from what the client sends to the archive a job unpacks."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainmaster.master.services.errors import Invalid, TooLarge

_TYPES = {ord(tarfile.REGTYPE): tarfile.REGTYPE, 0: tarfile.REGTYPE, ord(tarfile.DIRTYPE): tarfile.DIRTYPE}


@dataclass(frozen=True)
class ContextFile:
    """As Determined's clients send it: `content` is base64, `type` the tar type's character code."""

    path: str
    type: int
    content: str
    mtime: int
    mode: int


def pack(files: Sequence[ContextFile], limit: int) -> bytes:
    """A gzipped tar with the files, empty bytes for none. The same files give the same bytes.

    Raises Invalid (a path that leaves the folder, a device, broken base64) and TooLarge, each with the path.
    """
    if not files:
        return b""
    total = 0
    buffer = io.BytesIO()
    packed = gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            info = tarfile.TarInfo(_checked(file.path))
            if file.type not in _TYPES:
                raise Invalid(f"{file.path}: only files and folders can be sent with an experiment.")
            info.type = _TYPES[file.type]
            info.mode = file.mode & 0o777
            info.mtime = file.mtime
            data = _decoded(file) if info.type == tarfile.REGTYPE else b""
            total += len(data)
            if total > limit:
                raise TooLarge(
                    f"{file.path}: with this file the experiment's folder is over the limit of "
                    f"{limit // 2**20} MB. "
                    "List what the training does not need in .detignore."
                )
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data else None)
    return buffer.getvalue()


def _checked(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or any(ord(c) < 32 for c in path):
        raise Invalid(f"{path!r}: a file's path must be relative and stay inside the experiment's folder.")
    return str(pure)


def _decoded(file: ContextFile) -> bytes:
    try:
        return base64.b64decode(file.content, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{file.path}: its content is not valid base64.") from None
