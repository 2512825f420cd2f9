"""The folder of one node's work."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.runtime.errors import BadJobFolder

_TMP = "/tmp"  # noqa: S108 - only private folders are made in it
_LONGEST = 80  # characters; a Unix socket's whole path may have 107


class RunDir:
    """A private folder on the node's own disk, gone afterwards.

    A container that has one for us names it in TRAINMASTER_NODE_DIR (Determined's harness wants
    /run/determined); otherwise we make one. Raises BadJobFolder when the named one is not there or not empty.
    """

    def __init__(self) -> None:
        given = os.environ.get("TRAINMASTER_NODE_DIR")
        self._given = Path(given) if given else None
        # It is emptied in the end: never one in which somebody else keeps something.
        if self._given is not None and (not self._given.is_dir() or any(self._given.iterdir())):
            raise BadJobFolder("TRAINMASTER_NODE_DIR must name an empty folder, %s is none" % self._given)

    def __enter__(self) -> Path:
        if self._given is not None:
            self._given.chmod(0o700)
            return self._given
        parent = os.environ.get("TMPDIR") or _TMP
        if len(parent) > _LONGEST or not os.access(parent, os.W_OK):
            parent = _TMP
        # A name that nobody can guess, and not taken if there is one: what tempfile does, which would have to be read.
        self._made = Path(parent) / ("tm-" + os.urandom(8).hex())
        self._made.mkdir(mode=0o700)
        return self._made

    def __exit__(self, *exception: object) -> None:
        import shutil  # not needed before the lease

        if self._given is None:
            shutil.rmtree(str(self._made), ignore_errors=True)
            return
        for path in self._given.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(str(path), ignore_errors=True)
            else:
                path.unlink()
