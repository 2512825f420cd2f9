"""Rules for every entry of a context (the user's files): where it may be written, and which of its metadata is
kept."""

from __future__ import annotations

import os
import posixpath

from trainmaster.runtime.errors import BadContext


def entry_path(name: str, role: str) -> str:
    """Normalise the relative path of an entry. `role` names it in the error ("entry", "link target").

    Raises BadContext for a path that is absolute or leads out of the context.
    """
    if name.startswith("/") or "\0" in name:
        raise BadContext("the context %s %r is an absolute path" % (role, name))
    clean = posixpath.normpath(name)
    if clean == ".." or clean.startswith("../"):
        raise BadContext("the context %s %r leads out of the context" % (role, name))
    return clean


def set_mode_and_time(path: str, mode: int, mtime: float) -> None:
    """Give a file the permissions of its entry, as far as they are safe, and its modification time (epoch seconds)."""
    os.chmod(path, 0o600 | (mode & 0o755))
    os.utime(path, (mtime, mtime))
