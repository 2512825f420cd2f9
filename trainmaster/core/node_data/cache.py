"""The copies of data on a node's own disk: made once, shared by all jobs of one account, removed when room is needed.

`FOLDER/trainmaster-UID/` holds a folder for each copy, `KEY.SIGNATURE`, with `content/` and `entry.json`. A copy never
changes; other content of the same source is another copy, which shares the files that are alike by hard links. Three
kinds of locks (flock(2): they end with their process) in `locks/`: of a source, while it is copied; of a copy, shared
by the jobs that use it; and one for the room.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from trainmaster.core.node_data.errors import DataFault, Stopped
from trainmaster.core.node_data.sources import CopyProgress, Source

CONTENT, ENTRY, PARTIAL = "content", "entry.json", ".partial"
LEFT_FREE = 2**30  # bytes of the file system that stay free for others
STEP = 2**30  # bytes by which a copy's share grows that turns out larger than was expected
_GONE = "gone-"  # what folders are called while they are removed
_POLL = 0.5  # seconds between looks at a lock that another job holds
PATIENCE = 1800.0  # seconds for which jobs that use the rest of the room are waited for
_TOLD = 30.0  # seconds between lines on the progress


class Held:
    """A copy that this process uses. `lock` is the descriptor that holds it."""

    def __init__(self, folder: str, lock: int, reused: bool) -> None:
        self.folder = folder
        self.lock = lock
        self.reused = reused

    @property
    def content(self) -> str:
        return os.path.join(self.folder, CONTENT)


class NodeCache:
    """The copies of one account on one node.

    Args:
        folder: Of the node, in which any account may make a folder.
        limit: Bytes of all copies together; None: what the disk has.
        log: Takes sentences for the job's log.
        stopped: Whether the job was asked to leave.

    Raises:
        DataFault: Another account has made this account's folder, or it cannot be made.
    """

    def __init__(
        self, folder: str, limit: Optional[int], log: Callable[[str], None], stopped: Callable[[], bool]
    ) -> None:
        self._base = os.path.join(folder, "trainmaster-%d" % os.geteuid())
        self._limit, self._log, self._stopped = limit, log, stopped
        self._locks = os.path.join(self._base, "locks")
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._base, 0o700)
            found = os.lstat(self._base)
        except OSError as error:
            raise DataFault(
                "%s cannot be used on this node: %s; the administrator's node_data names it" % (folder, error.strerror)
            ) from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise DataFault("%s is another account's, or others may look into it: remove it" % self._base)
        os.makedirs(self._locks, 0o700, exist_ok=True)
        for title in os.listdir(self._base):  # of a job that was killed while it removed a copy
            if title.startswith(_GONE):
                shutil.rmtree(os.path.join(self._base, title), ignore_errors=True)
            elif not _entry(os.path.join(self._base, title)).get("keep", True):  # of one that had no time to drop it
                self._remove(title)

    def hold(self, name: str, source: Source, keep: bool = True) -> Held:
        """Return a copy of what the source holds now; make it if there is none. It stays for later jobs if any that
        used it says `keep`. Raises DataFault, Stopped, OSError."""
        began = time.monotonic()
        title = "%s.%s" % (source.key, source.signature)
        folder = os.path.join(self._base, title)
        with self._locked(source.key, "data %s: another job on this node copies it; waiting for that" % name):
            use = self._open(title)
            fcntl.flock(use, fcntl.LOCK_SH)
            try:
                reused = os.path.isdir(folder)
                if reused:
                    self._log("data %s: %s is on this node already (%s)" % (name, source.text, _size(_entry(folder))))
                else:
                    self._make(name, source, folder, began)
                entry = _entry(folder)
                # Its time is that of the latest use.
                _write(folder, {**entry, "keep": keep or (reused and entry.get("keep", True))})
            except BaseException:
                os.close(use)
                raise
        return Held(folder, use, reused)

    def drop(self, held: Held) -> None:
        """End the use of a copy, and remove it unless another job uses it or wants it kept."""
        os.close(held.lock)
        if _entry(held.folder).get("keep", True):
            return
        self._remove(os.path.basename(held.folder))

    # -- inside ---------------------------------------------------------------------------------------------------

    def _make(self, name: str, source: Source, folder: str, began: float) -> None:
        partial = folder + PARTIAL
        expected = source.size
        share = [expected]
        os.makedirs(partial, exist_ok=True)
        for title in self._titles():  # earlier copies that never were complete: this process holds the source's lock
            if title.startswith(source.key + ".") and title.endswith(PARTIAL) and title != os.path.basename(partial):
                shutil.rmtree(os.path.join(self._base, title), ignore_errors=True)
        self._reserve(partial, source, expected)
        told = [time.monotonic()]

        def grow(copied: int) -> None:
            if copied > share[0]:
                share[0] = copied + STEP
                self._reserve(partial, source, share[0])
            if time.monotonic() > told[0] + _TOLD:
                told[0] = time.monotonic()
                self._log("data %s: %s of %s copied" % (name, _bytes(copied), _bytes(max(expected, copied))))

        progress = CopyProgress(self._stopped, grow)
        earlier = self._earlier(source.key)
        source.copy(os.path.join(partial, CONTENT), earlier, progress)
        _write(partial, {"source": source.text, "size": _bytes_below(os.path.join(partial, CONTENT))})
        os.rename(partial, folder)
        there = ", %d were on this node already" % progress.linked if progress.linked else ""
        self._log(
            "data %s: copied %s in %d files from %s in %.1f s%s"
            % (name, _bytes(progress.copied), progress.files, source.text, time.monotonic() - began, there)
        )
        for title in self._titles():
            if title.startswith(source.key + ".") and title != os.path.basename(folder):
                self._remove(title)

    def _earlier(self, key: str) -> Optional[str]:
        """Return the newest copy of an earlier state of the source."""
        found = [title for title in self._titles() if title.startswith(key + ".") and not title.endswith(PARTIAL)]
        newest = max(found, key=lambda title: _used(os.path.join(self._base, title)), default=None)
        return None if newest is None else os.path.join(self._base, newest, CONTENT)

    def _reserve(self, partial: str, source: Source, share: int) -> None:
        """Note what a copy needs in all, after making room for it: from copies that no job uses, the longest unused
        first; then by waiting for jobs to end. Raises DataFault, Stopped."""
        deadline = time.monotonic() + PATIENCE
        said = False
        while True:
            with self._locked("room", ""):
                room, most = self._make_room(os.path.basename(partial), share)
                if room >= share:
                    _write(partial, {"source": source.text, "size": share})
                    return
            wanting = "%s needs %s on this node, and %s has room for %s" % (
                source.text,
                _bytes(share),
                self._base,
                _bytes(max(room, 0)),
            )
            if most < share:
                raise DataFault(wanting)
            if time.monotonic() > deadline:
                raise DataFault("%s: jobs that run use the rest" % wanting)
            if not said:
                said = True
                self._log("%s: waiting for jobs that use the rest" % wanting)
            if self._stopped():
                raise Stopped
            time.sleep(_POLL)

    def _make_room(self, own: str, share: int) -> Tuple[int, int]:
        """Remove what no job uses until there is room; return the bytes there is room for now, and at most."""
        tried: Set[str] = set()
        while True:
            sizes = {title: int(_entry(os.path.join(self._base, title)).get("size", 0)) for title in self._titles()}
            others = sum(size for title, size in sizes.items() if title != own)
            disk = os.statvfs(self._base)
            free = disk.f_bavail * disk.f_frsize - LEFT_FREE + _bytes_below(os.path.join(self._base, own))
            limit = disk.f_blocks * disk.f_frsize if self._limit is None else self._limit
            room = min(free, limit - others)
            oldest = sorted(
                (title for title in sizes if title != own and title not in tried),
                key=lambda title: _used(os.path.join(self._base, title)),
            )
            if room >= share or not oldest:
                return room, min(free + others, limit)
            tried.add(oldest[0])
            self._remove(oldest[0])

    def _titles(self) -> List[str]:
        return [title for title in os.listdir(self._base) if "." in title and title != "locks"]

    def _remove(self, title: str) -> None:
        """Remove a copy that no job uses, or what is left of one that is not being made any more."""
        unfinished = title.endswith(PARTIAL)
        lock = self._open(title.partition(".")[0] if unfinished else title)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = os.path.join(self._base, _GONE + os.urandom(8).hex())
            os.rename(os.path.join(self._base, title), gone)
            shutil.rmtree(gone, ignore_errors=True)
        except OSError:  # in use, or another job has removed it
            pass
        finally:
            os.close(lock)

    def _open(self, name: str) -> int:
        return os.open(os.path.join(self._locks, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def _locked(self, name: str, waiting: str) -> Iterator[None]:
        lock = self._open(name)
        try:
            said = not waiting
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not said:
                        said = True
                        self._log(waiting)
                    if self._stopped():
                        raise Stopped from None
                    time.sleep(_POLL if waiting else _POLL / 10)
            yield
        finally:
            os.close(lock)


def _entry(folder: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(folder, ENTRY), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(folder: str, entry: Dict[str, Any]) -> None:
    path = os.path.join(folder, ENTRY)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(entry, file)
    os.replace(path + ".new", path)


def _used(folder: str) -> float:
    try:
        return os.stat(os.path.join(folder, ENTRY)).st_mtime
    except OSError:
        return 0.0


def _bytes_below(folder: str) -> int:
    """Bytes of the disk that files take; a file with several links counts once for each."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _size(entry: Dict[str, Any]) -> str:
    return _bytes(int(entry.get("size", 0)))


def _bytes(count: int) -> str:
    """Return `count` bytes in words: `12.3 GB`."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return "%d B" % count if unit == "B" else "%.3g %s" % (value, unit)
