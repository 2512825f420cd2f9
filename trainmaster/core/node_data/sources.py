"""Where data comes from: a folder, a file, an archive, or a prefix of the experiment's object store.

A source lists its files first. The list names the copy: other content has another one, so that a copy never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tarfile
import threading
import zipfile
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from trainmaster.core.errors import CheckpointError
from trainmaster.core.node_data.errors import DataFault, Stopped
from trainmaster.core.transfer import Download
from trainmaster.runtime.record import Record

STORE = "storage:"  # what sources of the object store begin with
WORKERS = 8  # threads: one file's latency on a shared file system is another one's time
_BLOCK = 4 * 2**20  # bytes that are copied at once
_WAITING = 1000  # files that are handed out
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_PACKED = 3  # how much larger than a compressed archive its content is assumed to be


class SourceFile(Record):
    """A file of a source: its path below it, bytes, and the time of its last change in nanoseconds."""

    path: str
    size: int
    modified: int


class CopyProgress:
    """Counts what is copied, and ends the copy when the job is asked to leave. Thread-safe.

    Args:
        stopped: Whether the job was asked to leave.
        grow: Called with the bytes that were written so far, before more are.
    """

    def __init__(self, stopped: Callable[[], bool], grow: Callable[[int], None]) -> None:
        self._stopped, self._grow = stopped, grow
        self._lock = threading.Lock()
        self.copied = 0  # bytes
        self.files = 0
        self.linked = 0  # files that an earlier copy had

    def add(self, size: int) -> None:
        """Count bytes that are about to be written. Raises Stopped, DataFault."""
        if self._stopped():
            raise Stopped
        with self._lock:
            self.copied += size
            self._grow(self.copied)

    def file(self, linked: bool = False) -> None:
        with self._lock:
            self.files += not linked
            self.linked += linked


class Source:
    """One item of the configuration's `data`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.files: List[SourceFile] = []

    @property
    def size(self) -> int:
        """Bytes that the copy is expected to need."""
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        """Names the source, whatever it holds."""
        return hashlib.sha256(("%s %s" % (type(self).__name__, self.text)).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def signature(self) -> str:
        """Names what it holds now."""
        digest = hashlib.sha256()
        for file in sorted(self.files, key=lambda file: file.path):
            digest.update(("%s\0%d\0%d\0" % (file.path, file.size, file.modified)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:16]

    def copy(self, target: str, earlier: Optional[str], progress: CopyProgress) -> None:
        """Write the content to `target`; files that a copy in `earlier` has as well are linked. What `target` holds of
        an interrupted copy is kept. Raises DataFault, Stopped, OSError."""
        raise NotImplementedError  # each kind of source has its own


def source_of(text: str, unpack: bool, page: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> Source:
    """Look at a source, and list its files. `page` asks the master for files of the object store. Raises DataFault."""
    if text.startswith(STORE):
        return StoredData(text, page)
    try:
        status = os.stat(text)
    except OSError as error:
        raise DataFault("%s cannot be read on this node: %s" % (text, error.strerror)) from None
    if stat.S_ISDIR(status.st_mode):
        return Folder(text)
    if not stat.S_ISREG(status.st_mode):
        raise DataFault("%s is neither a folder nor a file" % text)
    if unpack and (text.endswith(_TAR) or text.endswith(".zip")):
        return Archive(text, status)
    return SingleFile(text, status)


class _Files(Source):
    """Files that are copied one by one."""

    def copy(self, target: str, earlier: Optional[str], progress: CopyProgress) -> None:
        def one(file: SourceFile) -> None:
            goal = self.place(target, file)
            if _is_same(goal, file) or (earlier is not None and _link(self.place(earlier, file), goal, file)):
                progress.file(linked=True)
            else:
                self.fetch(file, goal, progress)
                progress.file()

        for folder in sorted({os.path.dirname(self.place(target, file)) for file in self.files} | {target}):
            if folder:
                os.makedirs(folder, exist_ok=True)
        _in_threads(one, self.files)

    def place(self, root: str, file: SourceFile) -> str:
        return os.path.join(root, file.path)

    def fetch(self, file: SourceFile, goal: str, progress: CopyProgress) -> None:
        raise NotImplementedError  # each kind of source has its own


class Folder(_Files):
    """A folder with all that is below it; links are followed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        try:
            self.files = list(_walk(text, "", ()))
        except OSError as error:
            raise DataFault("%s cannot be read: %s" % (error.filename or text, error.strerror)) from None

    def fetch(self, file: SourceFile, goal: str, progress: CopyProgress) -> None:
        _copy(os.path.join(self.text, file.path), goal, file, progress)


class SingleFile(_Files):
    """A file, under its own name."""

    def __init__(self, text: str, status: os.stat_result) -> None:
        super().__init__(text)
        self.files = [SourceFile(os.path.basename(text), status.st_size, status.st_mtime_ns)]

    def fetch(self, file: SourceFile, goal: str, progress: CopyProgress) -> None:
        _copy(self.text, goal, file, progress)


class Archive(Source):
    """A tar or zip file, whose content is unpacked."""

    def __init__(self, text: str, status: os.stat_result) -> None:
        super().__init__(text)
        self.files = [SourceFile(os.path.basename(text), status.st_size, status.st_mtime_ns)]

    @property
    def size(self) -> int:
        if self.text.endswith(".zip"):
            with self._opened() as packed:
                return sum(each.file_size for each in packed.infolist())
        packed_size = self.files[0].size
        return packed_size if self.text.endswith(".tar") else _PACKED * packed_size

    def copy(self, target: str, earlier: Optional[str], progress: CopyProgress) -> None:
        del earlier  # an archive is unpacked as a whole
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        try:
            self._unpack(os.path.realpath(target), progress)
        except (DataFault, Stopped, OSError):
            raise
        except Exception as error:  # each way of packing has errors of its own
            raise DataFault("%s cannot be unpacked: %s" % (self.text, error)) from None

    def _unpack(self, root: str, progress: CopyProgress) -> None:
        with self._opened() as packed:
            entries = _of_zip(packed) if self.text.endswith(".zip") else _of_tar(packed)
            for name, is_folder, content, modified in entries:
                goal = _inside(root, name, self.text)
                if is_folder:
                    os.makedirs(goal, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(goal), exist_ok=True)
                _forget(goal)  # of two entries with one name the later one holds
                with content as file, open(goal, "xb") as out:
                    _pump(file, out, progress)
                _settle(goal, int(modified * 1e9))
                progress.file()

    def _opened(self) -> Any:
        try:
            return zipfile.ZipFile(self.text) if self.text.endswith(".zip") else tarfile.open(self.text)
        except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise DataFault("%s cannot be unpacked: %s" % (self.text, error)) from None


class StoredData(Source):
    """What lies below a prefix of the experiment's object store."""

    def __init__(self, text: str, page: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> None:
        super().__init__(text)
        self._page = page
        after: Optional[str] = ""
        while after is not None:
            answer = page({"after": after})
            self.files += [SourceFile(one["path"], one["size"], int(one["modified"] * 1e9)) for one in answer["files"]]
            after = answer["after"] or None
        if not self.files:
            raise DataFault("there is nothing at %s" % text)

    def copy(self, target: str, earlier: Optional[str], progress: CopyProgress) -> None:
        from pathlib import Path

        left: Dict[str, SourceFile] = {}
        for file in self.files:
            goal = os.path.join(target, file.path)
            os.makedirs(os.path.dirname(goal), exist_ok=True)
            if _is_same(goal, file) or (earlier is not None and _link(os.path.join(earlier, file.path), goal, file)):
                progress.file(linked=True)
            else:
                left[file.path] = file
        progress.add(sum(file.size for file in left.values()))
        try:
            Download(self._page, Path(target)).run(lambda path: path in left)
        except CheckpointError as error:
            raise DataFault("%s: %s" % (self.text, error)) from None
        for file in left.values():
            _settle(os.path.join(target, file.path), file.modified)
            progress.file()


# -- inside ---------------------------------------------------------------------------------------------------------


def _walk(folder: str, prefix: str, above: Tuple[Tuple[int, int], ...]) -> Iterator[SourceFile]:
    """Raise OSError. A link to a folder that it is in is passed over, and so is what is no file."""
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            try:
                found = entry.stat()
            except FileNotFoundError:  # a link to nothing
                continue
            if stat.S_ISDIR(found.st_mode):
                for file in _walk(entry.path, path + "/", (*above, identity)):
                    yield file
            elif stat.S_ISREG(found.st_mode):
                yield SourceFile(path, found.st_size, found.st_mtime_ns)


def _is_same(path: str, file: SourceFile) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (file.size, file.modified)


def _link(path: str, goal: str, file: SourceFile) -> bool:
    if not _is_same(path, file):
        return False
    try:
        os.link(path, goal)
    except OSError:  # this file system has no links, or too many
        return False
    return True


def _copy(path: str, goal: str, file: SourceFile, progress: CopyProgress) -> None:
    partial = "%s.%s.part" % (goal[:4000], os.urandom(4).hex())
    try:
        with open(path, "rb", buffering=0) as source, open(partial, "xb", buffering=0) as out:
            _pump(source, out, progress)
            found = os.fstat(source.fileno())
        if (found.st_size, found.st_mtime_ns) != (file.size, file.modified):
            raise DataFault("%s was changed while it was copied" % path)
        _settle(partial, file.modified)
        os.replace(partial, goal)
    except BaseException:
        _forget(partial)
        raise


def _pump(source: BinaryIO, out: BinaryIO, progress: CopyProgress) -> None:
    while True:
        block = source.read(_BLOCK)
        if not block:
            return
        progress.add(len(block))
        view = memoryview(block)
        while view:
            view = view[out.write(view) :]


def _settle(path: str, modified: int) -> None:
    """Give a file its time, and let nobody write to it: other copies and other jobs share it."""
    os.utime(path, ns=(modified, modified))
    os.chmod(path, 0o444)


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _of_tar(packed: tarfile.TarFile) -> Iterator[Tuple[str, bool, Any, float]]:
    """Yield files and folders; links to other entries as the files that they lead to, devices not at all."""
    for member in packed:
        if member.isdir():
            yield member.name, True, None, 0.0
        elif member.isreg() or member.islnk() or member.issym():
            try:
                content = packed.extractfile(member)
            except KeyError:  # a link to what is not in the archive
                continue
            if content is not None:
                yield member.name, False, content, float(member.mtime)


def _of_zip(packed: zipfile.ZipFile) -> Iterator[Tuple[str, bool, Any, float]]:
    import time

    for member in packed.infolist():
        try:
            moment = time.mktime((*member.date_time, 0, 0, -1))
        except (OverflowError, ValueError):  # a month 0
            moment = 0.0
        yield member.filename, member.is_dir(), None if member.is_dir() else packed.open(member), moment


def _inside(root: str, name: str, archive: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise DataFault("%s has an entry that leads out of it: %r" % (archive, name))
    return os.path.join(root, *parts)


def _in_threads(run: Callable[[SourceFile], None], files: List[SourceFile]) -> None:
    """Raise what one of them raises, once none runs any more."""
    with ThreadPoolExecutor(WORKERS, "data") as pool:
        waiting: Set[Future[None]] = set()
        try:
            for file in files:
                waiting.add(pool.submit(run, file))
                if len(waiting) >= _WAITING:
                    waiting = _collect(waiting)
            while waiting:
                waiting = _collect(waiting)
        except BaseException:
            for each in waiting:
                each.cancel()
            raise


def _collect(waiting: Set[Future[None]]) -> Set[Future[None]]:
    done, left = wait(waiting, return_when=FIRST_COMPLETED)
    for each in done:
        each.result()
    return left
