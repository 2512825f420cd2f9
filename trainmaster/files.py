"""Replacing files in one step, for the master, its dispatchers and the agent."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: bytes | str | Iterable[bytes], mode: int = 0o600) -> os.stat_result:
    """Make a file appear under `path` with all of its content, or leave what is there: who reads sees the old file or
    the new one, and after a crash one of them is on disk. Returns the new file's status. Raises OSError.

    The draft beside it has a name that nobody can guess or has taken: the folder may be open to others.
    """
    pieces = (content.encode(),) if isinstance(content, str) else (content,) if isinstance(content, bytes) else content
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)  # also: a node that reads over NFS must not see an empty file (nextflow#4154)
            status = os.fstat(descriptor)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    return status
