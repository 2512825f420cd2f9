"""Lists, reads and removes folders of users' files safely, through descriptors. No other module accesses them.

The owner of a folder can change at any moment where its path leads. So a path is walked from `/`, each folder is opened
by its name in the folder above it, and no link is followed, except one that only root can have made: it belongs to root
and lies in a folder of root that no other account can write (a site's /home -> /gpfs/home). The opened folder must
belong to the account whose files it should hold. All further steps use opened folders, which cannot be replaced.

It is part of the helper program as well: Python 3.8 and its standard library only, and nothing of this package.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

MAX_ENTRIES = 1_000_000  # of one folder with all its subfolders
MAX_DEPTH = 100  # nested folders; each needs a descriptor
MAX_LINKS = 20  # links of root on one path
SLACK = 600.0  # seconds that the clocks of a file server and of the master may differ
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
Identity = Tuple[int, int]  # device and inode of a folder
_OWN_DATA = "lies in the master's own data"


class Untouched(Exception):
    """The folder must not be touched, now or later; the message says why, as the rest of a sentence after its path."""


class Unfinished(Exception):
    """The limit of one pass is reached; the next pass continues."""


class Rules(NamedTuple):
    """Which folders may be touched."""

    owner: int  # uid of the account whose files they are
    since: Optional[float] = None  # epoch seconds; a folder not changed since is something else
    fence: Optional[Identity] = None  # nothing in this folder is touched
    gate: Optional[Identity] = None  # except this folder directly in it, with its content
    until: Optional[float] = None  # `time.monotonic()` when to stop


class TreeEntry(NamedTuple):
    """One entry of a folder. The descriptor `folder` is valid while the entry is the current one of the iteration."""

    path: str  # relative, with slashes
    status: os.stat_result
    folder: int
    name: str


class _Opened(NamedTuple):
    parent: int
    name: str
    folder: int


def identity(path: str) -> Optional[Identity]:
    """Return device and inode of a folder; None when it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def open_folder(path: str, rules: Rules) -> int:
    """Open the folder; the caller closes the descriptor. Raises FileNotFoundError, Untouched, OSError."""
    opened = _open(path, rules)
    os.close(opened.parent)
    return opened.folder


def sizes(path: str, rules: Rules) -> Dict[str, int]:
    """Return the size in bytes of each entry, by relative path; folders end with a slash and have 0. What links to
    places inside lead to is listed under their names as well. Empty when the folder does not exist. Raises Untouched,
    Unfinished, OSError."""
    try:
        folder = open_folder(path, rules)
    except FileNotFoundError:
        return {}
    sizes_by_path: Dict[str, int] = {}
    links: Dict[str, str] = {}
    try:
        for entry in entries(folder, rules):
            if stat.S_ISLNK(entry.status.st_mode):
                links[entry.path] = os.readlink(entry.name, dir_fd=entry.folder)
            else:
                sizes_by_path[entry.path + "/" * is_folder(entry)] = 0 if is_folder(entry) else entry.status.st_size
        return _with_links(sizes_by_path, links)
    finally:
        os.close(folder)


def is_folder(entry: TreeEntry) -> bool:
    return stat.S_ISDIR(entry.status.st_mode)


def entries(folder: int, rules: Rules) -> Iterator[TreeEntry]:
    """Yield all entries of an opened folder, each folder before its content. Raises Untouched, Unfinished, OSError."""
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
    """Open a plain file, which must belong to the account; hard links are refused, because the file may be another
    account's. Raises Untouched, OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(entry.name, flags, dir_fd=entry.folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != rules.owner:
        os.close(descriptor)
        raise Untouched("%s is not a file of the checkpoint's owner" % entry.path)
    return descriptor


def remove(path: str, patterns: Sequence[str], rules: Rules) -> Dict[str, int]:
    """Remove entries that match one of `patterns`, folders only if they are then empty, and the folder itself if
    nothing is left. Links are removed, not followed. Returns what is left, as `sizes`. A repeated call continues.
    Raises Untouched, Unfinished, OSError."""
    try:
        opened = _open(path, rules)
    except FileNotFoundError:
        return {}
    try:
        split = [tuple(part for part in pattern.split("/") if part not in ("", ".")) for pattern in patterns]
        links: Dict[str, str] = {}
        outcome = _remove_below(opened.folder, (), 0, split, rules, _Budget(rules), links)
        left = _with_links(outcome, links)
        if not outcome and not links and patterns:
            held, there = os.fstat(opened.folder), _status(opened.name, opened.parent)
            if there is not None and (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
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
    folder: int,
    above: Tuple[str, ...],
    depth: int,
    patterns: Sequence[Sequence[str]],
    rules: Rules,
    budget: _Budget,
    links: Dict[str, str],
) -> Dict[str, int]:
    """`links`: those that are left are added to it, with their targets."""
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
                before = len(links)
                inside = _remove_below(inner, parts, depth + 1, patterns, rules, budget, links)
            finally:
                os.close(inner)
            if goes and not inside and len(links) == before:
                os.rmdir(name, dir_fd=folder)
            else:
                left["/".join(parts) + "/"] = 0
                left.update(inside)
        elif goes:
            os.unlink(name, dir_fd=folder)
        elif stat.S_ISLNK(status.st_mode):
            links["/".join(parts)] = os.readlink(name, dir_fd=folder)
        else:
            left["/".join(parts)] = status.st_size
    return left


def _with_links(sizes_by_path: Dict[str, int], links: Dict[str, str]) -> Dict[str, int]:
    """Add the names of links, and of what is in the folders that they lead to: by their texts, nothing is followed."""
    added: Dict[str, int] = {}
    for link in links:
        goal = link
        for _ in range(MAX_LINKS):
            if goal not in links:
                break
            goal = os.path.normpath(os.path.join(os.path.dirname(goal), links[goal]))
        if goal in sizes_by_path:
            added[link] = sizes_by_path[goal]
        elif goal + "/" in sizes_by_path and not (link + "/").startswith(goal + "/"):
            below = (name for name in sizes_by_path if name.startswith(goal + "/"))
            added.update((link + name[len(goal) :], sizes_by_path[name]) for name in below)
        else:
            added[link] = 0
    return {**sizes_by_path, **added}


def _enter(name: str, folder: int, rules: Rules, depth: int) -> int:
    """Open a subfolder, which must belong to the account and be on the same file system."""
    if depth >= MAX_DEPTH:
        raise Untouched("holds more than %d nested folders: remove them yourself" % MAX_DEPTH)
    inner = os.open(name, _READ, dir_fd=folder)
    status, around = os.fstat(inner), os.fstat(folder)
    if (
        status.st_uid == rules.owner
        and status.st_dev == around.st_dev
        and (status.st_dev, status.st_ino) != rules.fence
    ):
        return inner
    os.close(inner)
    raise Untouched("holds the folder %s, which belongs to another account or is a mount point" % name)


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
    """Raise Untouched unless an opened folder is the expected one."""
    status = os.fstat(folder)
    if _identity(folder) in (rules.fence, rules.gate):
        raise Untouched(_OWN_DATA)
    if status.st_uid != rules.owner:
        raise Untouched("belongs to uid %d, and its files should be those of uid %d" % (status.st_uid, rules.owner))
    if rules.since is not None and status.st_ctime < rules.since - SLACK:
        raise Untouched("is older than the trial that should have written it")
    # A checkpoint may hold a folder of that name; a storage folder with event files has no checkpoint metadata.
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
    """Open the folder above `path`; return its descriptor and the last name, which is not checked."""
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
            # The passed parts contain no link, so their text is the real path.
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
    """Open the folder of that name for lookups only; None for a link or a file. Raises OSError."""
    try:
        return os.open(name, _PASS, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _identity(folder: int) -> Identity:
    status = os.fstat(folder)
    return (status.st_dev, status.st_ino)


def _link_of_roots(name: str, folder: int) -> Optional[str]:
    """Return the target of a link that only root can have made and can replace; None for others."""
    around, status = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode) or status.st_uid or around.st_uid or around.st_mode & 0o022:
        return None
    return os.readlink(name, dir_fd=folder)


def _status(name: str, folder: int) -> Optional[os.stat_result]:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
