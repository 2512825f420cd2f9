"""Moves the files of a checkpoint between this machine and an object store, several at a time.

Each file is read once for its digests and once by the network, so that a checkpoint of any size needs no memory. The
store checks every request by MD5, and a download is checked by the SHA-256 that was computed before the upload.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from trainmaster.core.errors import CheckpointError
from trainmaster.core.store_requests import PATIENCE as PATIENCE
from trainmaster.core.store_requests import Gone, Signed, Stale, StoreRequests
from trainmaster.runtime.connection import FilePart
from trainmaster.runtime.record import Record

logger = logging.getLogger("trainmaster.core")

WORKERS = 8  # connections at once
PART = 16 << 20  # bytes: of a part of a large file, as the master has it
_BATCH_FILES, _BATCH_BYTES = 200, 1 << 30  # of one call to the master
_BLOCK = 1 << 20  # bytes read at once
_WAITING = 4 * WORKERS  # requests that are prepared and not sent yet
_RENEWALS = 3  # new signatures for one request in a row
_RANGE = 512 << 20  # bytes: larger files are downloaded in several requests at once

Call = Callable[[str, Mapping[str, Any]], Any]
"""A call to the master about one checkpoint: the verb and the body."""


class Digest(Record):
    """A file as it was read: size in bytes, SHA-256 in hexadecimal, and the MD5 of each part."""

    size: int
    sha256: str
    md5s: Sequence[bytes]


class Sent(Record):
    """What an upload did: bytes sent, bytes that the store had already, and seconds."""

    sent: int
    reused: int
    seconds: float


def part_size(size: int) -> int:
    """Return the bytes of a part of a file, as the master has it."""
    least = -(-size // 10_000)
    return max(PART, -(-least // (1 << 20)) << 20)


def digest_of(path: str) -> Digest:
    """Read a file once. Raises CheckpointError when it changes meanwhile."""
    whole = hashlib.sha256()
    md5s: List[bytes] = []
    with open(path, "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        step = part_size(before.st_size)
        left, part, room = before.st_size, _md5(), step
        while left:
            block = file.read(min(_BLOCK, left, room))
            if not block:
                break
            whole.update(block)
            part.update(block)
            left, room = left - len(block), room - len(block)
            if not room:
                md5s.append(part.digest())
                part, room = _md5(), step
        if room != step or not md5s:
            md5s.append(part.digest())
        after = os.fstat(file.fileno())
    if left or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise CheckpointError("%s changes while it is stored: close it before the checkpoint is" % path)
    return Digest(before.st_size, whole.hexdigest(), md5s)


class Upload:
    """Sends files of one checkpoint. Use once.

    Args:
        call: Calls the master about this checkpoint.
        source: The folder of the files.
    """

    def __init__(self, call: Call, source: Path) -> None:
        self._call = call
        self._source = source
        self._requests: Optional[StoreRequests] = None
        self._lock = threading.Lock()
        self._failed = False
        self._small: List[str] = []  # have arrived, and the master does not know yet
        self._sent = self._reused = 0

    def run(self, names: Sequence[str]) -> Sent:
        """Send these files, given relative to the folder.

        Raises:
            CheckpointError: The store or the master refuses, or was away for too long, or a file changes.
        """
        began = time.monotonic()
        with ThreadPoolExecutor(WORKERS, "upload") as pool:
            waiting: Set[Future[Any]] = set()
            try:
                for batch in self._batches(names):
                    found = list(pool.map(self._digest, batch))
                    waiting |= {pool.submit(*step) for step in self._steps(batch, found, resend=False)}
                    while len(waiting) > _WAITING:
                        waiting = _collect(waiting)
                while waiting:
                    waiting = _collect(waiting)
                self._tell_small(0)
            except BaseException:
                self._failed = True
                for each in waiting:
                    each.cancel()
                raise
            finally:
                if self._requests is not None:
                    list(pool.map(lambda _: self._close(), range(WORKERS)))
        return Sent(self._sent, self._reused, time.monotonic() - began)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _batches(self, names: Sequence[str]) -> Iterator[List[str]]:
        batch: List[str] = []
        size = 0
        for name in names:
            batch.append(name)
            size += os.stat(str(self._source / name)).st_size
            if len(batch) == _BATCH_FILES or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _digest(self, name: str) -> Digest:
        return digest_of(str(self._source / name))

    def _steps(self, names: Sequence[str], found: Sequence[Digest], *, resend: bool) -> List[Tuple[Any, ...]]:
        """Announce files; return what is to be done for each, as arguments of `submit`."""
        files = [{"path": name, "size": each.size, "sha256": each.sha256} for name, each in zip(names, found)]  # noqa: B905
        answer = self._call("begin", {"files": files, "resend": resend})
        if self._requests is None:
            self._requests = StoreRequests(answer["authority"], lambda: self._failed)
        digests = dict(zip(names, found))  # noqa: B905
        steps: List[Tuple[Any, ...]] = []
        copied: List[str] = []
        for plan in answer["files"]:
            name = plan["path"]
            digest = digests[name]
            if plan["there"]:
                self._count(reused=digest.size)
            elif plan["copied"]:
                copied.append(name)
            elif plan["put"] is not None:
                steps.append((self._send_whole, name, digest, Signed.of(plan["put"])))
            else:
                large = _Large(name, digest, plan["part"], list(map(Signed.of, plan["parts"])))
                steps += [(self._send_part, large, number) for number in range(1, large.count + 1)]
        for begin in range(0, len(copied), WORKERS):
            some = copied[begin : begin + WORKERS]
            steps.append((self._copy, {name: digests[name] for name in some}))
        return steps

    def _send_whole(self, name: str, digest: Digest, signed: Signed) -> None:
        with open(str(self._source / name), "rb", buffering=0) as file:
            self._renewing(name, 1, signed, lambda fresh: self._put(fresh, file, 0, digest.size, digest.md5s[0]))
        self._count(sent=digest.size)
        with self._lock:
            self._small.append(name)
        self._tell_small(_BATCH_FILES)

    def _send_part(self, large: _Large, number: int) -> None:
        offset = (number - 1) * large.part
        size = min(large.part, large.digest.size - offset)
        signed = large.signed.get(number) or self._renewed(large.name, number, large)
        md5 = large.digest.md5s[number - 1]
        with open(str(self._source / large.name), "rb", buffering=0) as file:
            mark = self._renewing(
                large.name, number, signed, lambda fresh: self._put(fresh, file, offset, size, md5), large
            )
        self._count(sent=size)
        with self._lock:
            large.marks[number] = mark
            whole = len(large.marks) == large.count
        if whole:
            marks = [large.marks[each] for each in range(1, large.count + 1)]
            self._call("finish", {"path": large.name, "marks": marks})

    def _copy(self, digests: Mapping[str, Digest]) -> None:
        left = self._call("copy", {"paths": list(digests)})["paths"]
        self._count(reused=sum(each.size for name, each in digests.items() if name not in left))
        if left:
            for step in self._steps(left, [digests[name] for name in left], resend=True):
                step[0](*step[1:])

    def _put(self, signed: Signed, file: Any, offset: int, size: int, md5: bytes) -> str:
        assert self._requests is not None
        if self._failed:
            raise CheckpointError("another file of the checkpoint could not be stored")
        return self._requests.put(signed, FilePart(file, offset, size), md5)

    def _renewing(
        self, name: str, number: int, signed: Signed, send: Callable[[Signed], str], large: Optional[_Large] = None
    ) -> str:
        """Send with a fresh signature where the old one holds no longer. Raises CheckpointError."""
        for _ in range(_RENEWALS):
            try:
                return send(signed)
            except Stale as error:
                said = str(error)
                signed = self._renewed(name, number, large)
            except Gone as error:
                raise CheckpointError(str(error)) from None
        raise CheckpointError(said)

    def _renewed(self, name: str, number: int, large: Optional[_Large]) -> Signed:
        answer = self._call("sign", {"path": name, "first": number})
        if large is None:
            return Signed.of(answer["put"])
        for place, each in enumerate(answer["parts"]):
            large.signed[number + place] = Signed.of(each)
        return large.signed[number]

    def _tell_small(self, least: int) -> None:
        with self._lock:
            if not self._small or len(self._small) < least:
                return
            paths, self._small = self._small, []
        self._call("sent", {"paths": paths})

    def _count(self, sent: int = 0, reused: int = 0) -> None:
        with self._lock:
            self._sent += sent
            self._reused += reused

    def _close(self) -> None:
        if self._requests is not None:
            self._requests.close()


class _Large:
    """A file that is sent in parts."""

    def __init__(self, name: str, digest: Digest, part: int, signed: Sequence[Signed]) -> None:
        self.name = name
        self.digest = digest
        self.part = part
        self.count = -(-digest.size // part)
        self.signed = dict(enumerate(signed, 1))
        self.marks: Dict[int, str] = {}


class Download:
    """Fetches files of one checkpoint. Use once.

    Args:
        page: Asks the master for a list of the files, with `after` (a path) for what follows it, or for one `path`.
        target: The folder to write into.
    """

    def __init__(self, page: Callable[[Mapping[str, str]], Mapping[str, Any]], target: Path) -> None:
        self._page = page
        self._target = target
        self._requests = StoreRequests(stopped=lambda: self._failed)
        self._lock = threading.Lock()
        self._made: Set[Path] = set()
        self._failed = False

    def run(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Fetch the files, and make the folders, of which `wanted` returns True.

        Raises:
            CheckpointError: A file is gone or not what was stored, or the store was away for too long.
        """
        with ThreadPoolExecutor(WORKERS, "download") as pool:
            waiting: Set[Future[Any]] = set()
            after: Optional[str] = ""
            try:
                while after is not None:
                    answer = self._page({"after": after})
                    if answer["authority"]:
                        self._requests = StoreRequests(answer["authority"], lambda: self._failed)
                    for folder in answer["folders"]:
                        if wanted(folder):
                            self._place(folder).mkdir(parents=True, exist_ok=True)
                    for entry in answer["files"]:
                        if wanted(entry["path"]):
                            waiting |= {pool.submit(*step) for step in self._steps(entry)}
                    while len(waiting) > 10 * _WAITING:
                        waiting = _collect(waiting)
                    after = answer["after"] or None
                while waiting:
                    waiting = _collect(waiting)
            except BaseException:
                self._failed = True
                for each in waiting:
                    each.cancel()
                raise

    def _steps(self, entry: Mapping[str, Any]) -> List[Tuple[Any, ...]]:
        """Return what is to be done for a file, as arguments of `submit`."""
        path, size = self._place(entry["path"]), int(entry["size"])
        if path.parent not in self._made:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        begins = range(0, size, _RANGE) or range(1)
        file = _Fetched(entry, path, size, Signed(entry["url"], entry["headers"]), len(begins))
        return [(self._fetch, file, begin, min(begin + _RANGE, size)) for begin in begins]

    def _fetch(self, fetched: _Fetched, begin: int, end: int) -> None:
        if self._failed:
            raise CheckpointError("another file of the checkpoint could not be fetched")
        try:
            with open(
                os.open(str(fetched.partial), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0
            ) as file:
                file.seek(begin)
                digested = _Digested(file, begin)
                self._read(fetched, digested, end)
            with self._lock:
                fetched.left -= 1
                whole = not fetched.left
            if whole:
                alone = (begin, end) == (0, fetched.size)
                _check(fetched, digested.sha256 if alone else digest_of(str(fetched.partial)).sha256)
                os.replace(str(fetched.partial), str(fetched.path))
        except BaseException:
            with contextlib.suppress(OSError):
                fetched.partial.unlink()
            raise

    def _read(self, fetched: _Fetched, file: Any, end: int) -> None:
        name = fetched.entry["path"]
        for _ in range(_RENEWALS):
            try:
                self._requests.get(fetched.signed, file, end)
                return
            except Stale as error:
                said = str(error)
                (entry,) = self._page({"path": name})["files"]
                fetched.signed = Signed(entry["url"], entry["headers"])
            except Gone:
                raise CheckpointError(
                    "the file %s of the checkpoint is gone: it was deleted meanwhile" % name
                ) from None
        raise CheckpointError(said)

    def _place(self, name: str) -> Path:
        parts = name.rstrip("/").split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise CheckpointError("the checkpoint has a file whose path leads out of it: %r" % name)
        return self._target.joinpath(*parts)


class _Fetched:
    """A file that is being fetched, into another one beside it."""

    def __init__(self, entry: Mapping[str, Any], path: Path, size: int, signed: Signed, left: int) -> None:
        self.entry = entry
        self.path = path
        self.partial = path.with_name("%s.%s.part" % (path.name[:200], os.urandom(4).hex()))
        self.size = size
        self.signed = signed
        self.left = left  # requests


class _Digested:
    """A file that is written from `begin` on, and digested at the same time."""

    def __init__(self, file: Any, begin: int) -> None:
        self._file = file
        self._place = begin
        self._whole = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._whole.hexdigest()

    def write(self, block: Any) -> None:
        done = 0
        while done < len(block):
            done += self._file.write(block[done:])
        self._whole.update(block)
        self._place += len(block)

    def tell(self) -> int:
        return self._place


def _check(fetched: _Fetched, digest: str) -> None:
    """Compare what was fetched with what was stored. Raises CheckpointError."""
    name, wanted = fetched.entry["path"], fetched.entry["sha256"]
    found = os.stat(str(fetched.partial)).st_size
    if found != fetched.size:
        raise CheckpointError(
            "%s has %d bytes in the store, and had %d when it was stored" % (name, found, fetched.size)
        )
    if wanted and digest != wanted:
        raise CheckpointError("%s is not what was stored: its SHA-256 is %s and should be %s" % (name, digest, wanted))


def _collect(waiting: Set[Future[Any]]) -> Set[Future[Any]]:
    """Wait for one at least; return the others. Raises what one of them raised."""
    done, left = wait(waiting, return_when=FIRST_COMPLETED)
    for each in done:
        each.result()
    return left


def _md5() -> Any:
    try:
        return hashlib.md5(usedforsecurity=False)  # type: ignore[call-arg, unused-ignore]
    except TypeError:  # Python 3.8
        return hashlib.md5()  # noqa: S324 - the store's own checksum
