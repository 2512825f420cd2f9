"""Lists, reads and removes folders of users' files, by descriptors: the only module that does.

Whoever owns a folder decides what its path leads to, at any moment. So a path is walked from `/`, each folder is opened
by its name in the folder above it, and no link is followed: except one that only root can have made, which belongs to
root in a folder of root's that nobody else can write (a site's /home -> /gpfs/home). What is opened must belong to the
account whose files they are. From then on everything is done in the opened folders, which nobody can exchange.

It is part of the helper program as well: Python 3.8 and its standard library only, and nothing of this package.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

MAX_ENTRIES = 1_000_000  # of one folder with all that is in it
MAX_DEPTH = 100  # folders below each other: a descriptor each
MAX_LINKS = 20  # of root's on one path
SLACK = 600.0  # seconds that the clocks of a file server and of the master may differ
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Identity = Tuple[int, int]  # device and inode of a folder
_OWN_DATA = "lies in the master's own data"


class Untouched(Exception):
    """What is there must be left alone, now and later; the message says why, after the folder's path."""


class Unfinished(Exception):
    """There is more than one go may take; going on from here is right."""


class Rules(NamedTuple):
    """Which folders may be touched."""

    owner: int  # uid of the account whose files they are
    since: Optional[float] = None  # epoch seconds: what has not changed since is older than what it is taken for
    fence: Optional[Identity] = None  # nothing in this folder is touched
    gate: Optional[Identity] = None  # but for this one directly in it, and what is in that
    until: Optional[float] = None  # `time.monotonic()` when to stop


class TreeEntry(NamedTuple):
    """One thing in a folder. `folder` is open while it is the current one."""

    path: str  # relative, with slashes
    status: os.stat_result
    folder: int
    name: str


class _Opened(NamedTuple):
    parent: int
    name: str
    folder: int


def identity(path: str) -> Optional[Identity]:
    """Of a folder of one's own; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def open_folder(path: str, rules: Rules) -> int:
    """A descriptor of the folder; whoever asks closes it. Raises FileNotFoundError, Untouched, OSError."""
    opened = _open(path, rules)
    os.close(opened.parent)
    return opened.folder


def sizes(path: str, rules: Rules) -> Dict[str, int]:
    """What lies there, by relative path: bytes of each; names of folders end with a slash and have 0. Empty when there
    is no such folder. Raises Untouched, Unfinished, OSError."""
    try:
        folder = open_folder(path, rules)
    except FileNotFoundError:
        return {}
    try:
        return {
            entry.path + "/" * is_folder(entry): 0 if is_folder(entry) else entry.status.st_size
            for entry in entries(folder, rules)
        }
    finally:
        os.close(folder)


def is_folder(entry: TreeEntry) -> bool:
    return stat.S_ISDIR(entry.status.st_mode)


def entries(folder: int, rules: Rules) -> Iterator[TreeEntry]:
    """All that is in an opened folder, each folder before what is in it. Raises Untouched, Unfinished, OSError."""
    budget = _Budget(rules)

    def below(inner: int, path: str, depth: int) -> Iterator[TreeEntry]:
        for name in sorted(os.listdir(inner)):
            status = _status(name, inner)
            if status is None:
                continue
            budget.spend()
            entry = TreeEntry(path + name, status, inner, name)
            yield entry
            if is_folder(entry):
                deeper = _enter(name, inner, rules, depth)
                try:
                    yield from below(deeper, entry.path + "/", depth + 1)
                finally:
                    os.close(deeper)

    return below(folder, "", 0)


def open_file(entry: TreeEntry, rules: Rules) -> int:
    """A descriptor of a plain file, which must be the account's own: a hard link is somebody else's. Raises Untouched,
    OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != rules.owner:
        os.close(descriptor)
        raise Untouched("%s is not a file of the checkpoint's owner" % entry.path)
    return descriptor


def remove(path: str, patterns: Sequence[str], rules: Rules) -> Dict[str, int]:
    """Remove what matches one of `patterns`, folders only when they are empty then, and the folder itself when nothing
    is left. Links are removed, not followed. Returns what is left, as `sizes`. Again goes on where it stopped. Raises
    Untouched, Unfinished, OSError."""
    try:
        opened = _open(path, rules)
    except FileNotFoundError:
        return {}
    try:
        split = [tuple(part for part in pattern.split("/") if part not in ("", ".")) for pattern in patterns]
        left = _remove_below(opened.folder, (), 0, split, rules, _Budget(rules))
        if not left and patterns:
            mine, there = os.fstat(opened.folder), _status(opened.name, opened.parent)
            if there is not None and (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
                os.rmdir(opened.name, dir_fd=opened.parent)
        return left
    finally:
        os.close(opened.folder)
        os.close(opened.parent)


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a relative path matches a pattern, part by part; `**` stands for any number of parts."""

    def skipping(places: List[int]) -> Iterator[int]:
        for place in places:
            yield place
            while place < len(pattern) and pattern[place] == "**":
                place += 1
                yield place

    places = sorted(set(skipping([0])))
    for part in parts:
        reached = []
        for place in places:
            if place < len(pattern) and pattern[place] == "**":
                reached.append(place)
            elif place < len(pattern) and fnmatch.fnmatchcase(part, pattern[place]):
                reached.append(place + 1)
        places = sorted(set(skipping(reached)))
    return len(pattern) in places


# -- inside ------------------------------------------------------------------------------------------------------------


class _Budget:
    def __init__(self, rules: Rules) -> None:
        self._left, self._until = MAX_ENTRIES, rules.until

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unfinished("there are more than %d files" % MAX_ENTRIES)
        if self._until is not None and time.monotonic() > self._until:
            raise Unfinished("it takes too long for one pass")


def _remove_below(
    folder: int, above: Tuple[str, ...], depth: int, patterns: Sequence[Sequence[str]], rules: Rules, budget: _Budget
) -> Dict[str, int]:
    left: Dict[str, int] = {}
    for name in sorted(os.listdir(folder)):
        status = _status(name, folder)
        if status is None:
            continue
        budget.spend()
        parts = (*above, name)
        goes = any(matches(parts, pattern) for pattern in patterns)
        if stat.S_ISDIR(status.st_mode):
            inner = _enter(name, folder, rules, depth)
            try:
                inside = _remove_below(inner, parts, depth + 1, patterns, rules, budget)
            finally:
                os.close(inner)
            if goes and not inside:
                os.rmdir(name, dir_fd=folder)
            else:
                left["/".join(parts) + "/"] = 0
                left.update(inside)
        elif goes:
            os.unlink(name, dir_fd=folder)
        else:
            left["/".join(parts)] = status.st_size
    return left


def _enter(name: str, folder: int, rules: Rules, depth: int) -> int:
    """A folder in an opened one: the account's own, on the same file system."""
    if depth >= MAX_DEPTH:
        raise Untouched("holds folders that lie deeper than %d in each other: remove them yourself" % MAX_DEPTH)
    inner = os.open(name, _READ, dir_fd=folder)
    found, around = os.fstat(inner), os.fstat(folder)
    if found.st_uid == rules.owner and found.st_dev == around.st_dev and (found.st_dev, found.st_ino) != rules.fence:
        return inner
    os.close(inner)
    raise Untouched("holds the folder %s, which belongs to somebody else or is mounted there" % name)


def _open(path: str, rules: Rules) -> _Opened:
    parent, name = _parent_of(path, rules)
    try:
        folder = os.open(name, _READ, dir_fd=parent)
    except OSError as error:
        os.close(parent)
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Untouched("is a link, or not a folder") from None
        raise
    try:
        _check(folder, rules)
    except BaseException:
        os.close(parent)
        os.close(folder)
        raise
    return _Opened(parent, name, folder)


def _check(folder: int, rules: Rules) -> None:
    """Whether an opened folder is what it is taken for."""
    found = os.fstat(folder)
    if _identity(folder) in (rules.fence, rules.gate):
        raise Untouched(_OWN_DATA)
    if found.st_uid != rules.owner:
        raise Untouched("belongs to uid %d, and its files should be those of uid %d" % (found.st_uid, rules.owner))
    if rules.since is not None and found.st_ctime < rules.since - SLACK:
        raise Untouched("is older than the trial that should have written it")
    # A checkpoint may hold a folder of that name; a storage in which event files lie has no metadata of a checkpoint.
    if _status("metadata.json", folder) is None and _holds_events(folder):
        raise Untouched("holds TensorBoard files of experiments, and is not a checkpoint")


def _holds_events(folder: int) -> bool:
    if _status("tensorboard", folder) is None:
        return False
    inner = _pass("tensorboard", folder)
    if inner is None:
        return False
    try:
        return _status("experiment", inner) is not None
    finally:
        os.close(inner)


def _parent_of(path: str, rules: Rules) -> Tuple[int, str]:
    """A descriptor of the folder above `path`, and the name in it, which is not looked at."""
    if not path.startswith("/") or "\0" in path:
        raise Untouched("is not an absolute path")
    parts, links = _parts(path), 0
    passed: List[str] = []
    here = os.open("/", _PASS)
    try:
        while len(parts) > 1:
            inner = _pass(parts[0], here)
            if inner is not None:
                at_fence = _identity(here) == rules.fence
                passed.append(parts.pop(0))
                os.close(here)
                here = inner
                if at_fence and _identity(here) != rules.gate:
                    raise Untouched(_OWN_DATA)
                continue
            target = _link_of_roots(parts[0], here)
            links += 1
            if target is None or links > MAX_LINKS:
                raise Untouched("has a part in its path that is not a folder: %s" % "/".join(("", *passed, parts[0])))
            # What was passed holds no link, so that its text is its place.
            parts, passed = _parts(os.path.join("/", *passed, target, *parts[1:])), []
            os.close(here)
            here = os.open("/", _PASS)
        if not parts or _identity(here) == rules.fence:
            raise Untouched(_OWN_DATA if parts else "is the root of all files")
        return os.dup(here), parts[0]
    finally:
        os.close(here)


def _parts(path: str) -> List[str]:
    return [part for part in os.path.normpath(path).split("/") if part]


def _pass(name: str, folder: int) -> Optional[int]:
    """The folder of that name, to look names up in; None for a link or a file. Raises OSError."""
    try:
        return os.open(name, _PASS, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _identity(folder: int) -> Identity:
    found = os.fstat(folder)
    return (found.st_dev, found.st_ino)


def _link_of_roots(name: str, folder: int) -> Optional[str]:
    """Where a link leads that nobody but root can have made or can exchange."""
    around, found = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode) or found.st_uid or around.st_uid or around.st_mode & 0o022:
        return None
    return os.readlink(name, dir_fd=folder)


def _status(name: str, folder: int) -> Optional[os.stat_result]:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
