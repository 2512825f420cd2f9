"""The run folder: private to one node of one job, on the node's own disk, removed at the end."""

from __future__ import annotations

import os
from typing import Callable, Container, Iterator, List, Set, Tuple

from trainmaster.runtime.errors import BadJobFolder

# Files in it by which the runtime and core of one node communicate.
CORE_SOCKET = "runtime.sock"
CORE_TAKEN_OVER = "core_by_runtime"  # the stream `core` is written by the runtime from now on
PREEMPT_FLAG = "preempt"  # JSON {"reason"}, written by the runtime
PREEMPT_ACKED = "preempt_acked"  # made by core when the user's code has seen the flag

_TMP = "/tmp"  # noqa: S108 - only private folders are made in it
_ESCAPES = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\"))  # in mountinfo
_LONGEST = 74  # characters; a Unix socket's whole path may have 107, of which 33 are our folder's and its own name


class RunDir:
    """A private folder on the node's own disk, removed at the end.

    A container that has one for us names it in TRAINMASTER_NODE_DIR (Determined's harness wants /run/determined);
    otherwise we make one. Raises BadJobFolder when the named one is not there or not empty. TRAINMASTER_PRIVATE may
    name a folder of the job's around it, which goes with it.
    """

    def __init__(self) -> None:
        self._given = os.environ.get("TRAINMASTER_NODE_DIR") or None
        # It is emptied in the end: never a folder that holds files of others.
        if self._given is not None and (not os.path.isdir(self._given) or _holds_something(self._given)):
            raise BadJobFolder("TRAINMASTER_NODE_DIR must name an empty folder, %s is none" % self._given)

    def __enter__(self) -> str:
        if self._given is not None:
            os.chmod(self._given, 0o700)
            return self._given
        parent = os.environ.get("TMPDIR") or _TMP
        if len(parent) > _LONGEST or not os.access(parent, os.W_OK):
            parent = _TMP
        # An unguessable name that must not exist, as tempfile makes it, which takes long to import.
        self._made = os.path.join(parent, "tm-" + os.urandom(8).hex())
        os.mkdir(self._made, 0o700)
        return self._made

    def __exit__(self, *exception: object) -> None:
        if self._given is not None:
            _empty(self._given)
            return
        for folder in (self._made, os.environ.get("TRAINMASTER_PRIVATE")):
            if folder:
                _empty(folder)
                _try(os.rmdir, folder)


def _holds_something(folder: str) -> bool:
    """Whether a folder has files, apart from mounts and the folders that were made for them."""
    if not os.listdir(folder):
        return False
    mounts = _mounts()
    return any(os.path.join(path, name) not in mounts for path, _, files in _walk(folder, mounts) for name in files)


def _empty(folder: str) -> None:
    """Remove everything in a folder but mounts; what cannot be removed stays."""
    try:
        mounts = _mounts()
    except OSError:  # the files of others cannot be told apart
        return
    passed = []
    for path, folders, files in _walk(folder, mounts):
        for name in files:
            _try(os.unlink, os.path.join(path, name))
        passed += [os.path.join(path, name) for name in folders]
    for path in reversed(passed):
        _try(_remove_folder, path)


def _walk(folder: str, mounts: Container[str]) -> Iterator[Tuple[str, List[str], List[str]]]:
    """`os.walk`, top down, that enters no mount: its content belongs to others."""
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(path, name) not in mounts]
        yield path, folders, files


def _mounts() -> Set[str]:
    """List all mount points. A mount from the same file system shows nowhere else (proc(5), mountinfo)."""
    mounts = set()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            place = line.split(b" ")[4]
            for escape, byte in _ESCAPES:
                place = place.replace(escape, byte)
            mounts.add(os.fsdecode(place))
    return mounts


def _try(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError:  # it stays
        return


def _remove_folder(path: str) -> None:
    if os.path.islink(path):  # os.walk counts one that leads to a folder among the folders, and does not follow it
        os.unlink(path)
    else:
        os.rmdir(path)
