"""Atomic file replacement, for the master, its dispatchers and the agent."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: bytes | str | Iterable[bytes], mode: int = 0o600) -> os.stat_result:
    """Write `content` to `path` atomically: readers see the old file or the new one, and after a crash one of the two
    is on disk. Returns the new file's status. Raises OSError, and then the old file stays.

    The temporary file beside it has a random, unused name, because other accounts may write into the folder.
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
