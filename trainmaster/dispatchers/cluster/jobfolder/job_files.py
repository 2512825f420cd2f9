"""Creates, reads and removes job folders as the account that owns them.

The job's user can change the folder at any moment, so nothing here trusts its content: paths are walked by descriptors
and through no link, every file must be the user's own plain file, and sizes are bounded.

It is part of the helper program as well: Python 3.8 and its standard library only, and nothing of this package
but modules that are part of it too.
"""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO, Dict, Iterator, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from trainmaster.dispatchers.cluster.jobfolder.own_files import (
    SUBFOLDER,
    TOKEN,
    RequestFailed,
    RequestRefused,
    descend,
    own_file,
    replace_in,
)
from trainmaster.dispatchers.cluster.jobfolder.shared_files import (
    ForeignCache,
    SharedContent,
    cache_dirs_of,
    exist,
    link,
    provide,
    sweep,
)

POLICY = "/etc/trainmaster/helper.json"
STREAM = re.compile(r"(?:core|log-[0-9]{1,6})\.jsonl")
OUTPUT = "output.txt"
URL_FILE = "master-url"
INSIDE_CHARACTER = bytes(range(0x80, 0xC0))  # in UTF-8: the bytes of a character but the first
MAX_RECORD = 1024**2  # of an exit record; a larger file is not one of ours
MAX_EXITS = 16 * 1024**2  # of all exit records of a job together
PIECE = 4 * 1024**2  # of report streams in one answer; no line may be longer
BLOCK = 1024**2  # bytes per read when lines are counted
MAX_RANKS = 10_000
TAIL = 64 * 1024


def _open_root(root: str, allowed: Optional[Sequence[str]] = None) -> int:
    """Open the folder of job folders: an allowed one, or one below it that is reached through no link."""
    if not root.startswith("/") or "\0" in root or os.path.normpath(root) != root:
        raise RequestRefused("the folder of jobs must be a normalized absolute path, not %r" % root)
    base = next((top for top in allowed or () if root == top or root.startswith(top.rstrip("/") + "/")), None)
    if allowed is not None and base is None:
        raise RequestFailed("%s is not below a folder that job_roots in %s names" % (root, POLICY))
    top = base or root
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return descend(descriptor, [part for part in root[len(top) :].split("/") if part])


def _open_job(root_fd: int, token: str) -> int:
    """Open the job folder; closes `root_fd`. Raises RequestFailed when it is not the user's."""
    if not TOKEN.fullmatch(token):
        os.close(root_fd)
        raise RequestRefused("%r is not a job token" % token)
    descriptor = descend(root_fd, [token])
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        raise RequestFailed("the job folder %s belongs to uid %d; an administrator must remove it" % (token, owner))
    return descriptor


class NotShared(RequestFailed):
    """Nothing can be shared in this root; the files must be staged without."""


def stage(
    root: str,
    token: str,
    files: Mapping[str, Tuple[bytes, int]],
    allowed: Optional[Sequence[str]] = None,
    cache_dir: str = "",
    shared: Optional[Mapping[str, SharedContent]] = None,
) -> List[str]:
    """Create the job folder and write `files` (path below it -> content and mode) into it, and links to those of
    `shared`, which stand in ROOT/`cache_dir`. Idempotent.

    Returns names of `shared` whose content is needed: then the folder is not complete, and the call must be repeated
    with them. Raises NotShared, RequestRefused, RequestFailed, OSError.
    """
    shared = shared or {}
    for name in (*files, *shared):
        if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
            raise RequestRefused("the staged file %r would be outside the job folder" % name)
    root_fd = _open_root(root, allowed)
    try:
        missing = provide(root_fd, cache_dir, shared)
        if missing:
            return missing
        if TOKEN.fullmatch(token):
            try:
                os.mkdir(token, 0o700, dir_fd=root_fd)
            except FileExistsError:
                pass
        _fill(_open_job(os.dup(root_fd), token), files, cache_dir, shared)
        # They may have been removed as unused before the links were there.
        return [] if exist(root_fd, cache_dir, shared) else sorted(shared)
    except ForeignCache as error:
        raise NotShared(str(error)) from None
    finally:
        os.close(root_fd)


def _fill(
    job: int, files: Mapping[str, Tuple[bytes, int]], cache_dir: str, shared: Mapping[str, SharedContent]
) -> None:
    """Write the files of an opened job folder; closes it."""
    try:
        os.fchmod(job, 0o700)
        for name in ("spool", "exit"):
            os.close(descend(os.dup(job), [name], make=True))
        for name, (content, mode) in files.items():
            *parents, leaf = name.split("/")
            folder = descend(os.dup(job), parents, make=True)
            try:
                replace_in(folder, leaf, content, mode & 0o777)
            finally:
                os.close(folder)
        link(job, cache_dir, shared)
    finally:
        os.close(job)


def announce(root: str, url: str) -> int:
    """Write the master's address into ROOT, for jobs that cannot reach the address they know. Returns the file's owner.
    A file of another account is an error: in a sticky folder it cannot be replaced."""
    if not re.fullmatch(r"https?://[!-~]{1,400}", url):
        raise RequestRefused("%r is not the address of a master" % url)
    folder = _open_root(root)
    try:
        replace_in(folder, URL_FILE, ("%s\n" % url).encode(), 0o644)
        return os.stat(URL_FILE, dir_fd=folder, follow_symlinks=False).st_uid
    finally:
        os.close(folder)


class StreamPart(NamedTuple):
    """Whole lines of a stream. Line number `line` of the file ends at byte `offset`, where this part ends. `more`:
    more lines follow. `cut`: the limit for reading the file is reached."""

    content: bytes
    line: int
    offset: int
    more: bool
    cut: bool


class JobRemains(NamedTuple):
    """Files that a job left: exit records by node rank, report streams by name, end of its output (None: no output)."""

    exits: Dict[int, bytes]
    streams: Dict[str, StreamPart]
    output_tail: Optional[bytes]


Places = Mapping[str, Sequence[int]]  # of streams: how many lines have been read, and where they end (-1: not known)


def collect(
    root: str,
    token: str,
    allowed: Optional[Sequence[str]] = None,
    places: Optional[Places] = None,
    most: int = 1024**3,
) -> JobRemains:
    """Read the job folder; empty when there is none. Of streams no more than PIECE bytes, from `places` on (others from
    their beginning; None: nothing), and nothing beyond the first `most` bytes of each. Raises RequestFailed,
    OSError."""
    left = JobRemains({}, {}, None)
    try:
        job = _open_job(_open_root(root, allowed), token)
    except (FileNotFoundError, NotADirectoryError):
        return left
    try:
        room = MAX_EXITS
        for folder, leaf in _leaves(job, "exit", re.compile(r"[0-9]{1,6}\.json")):
            content = _read(folder, leaf, min(MAX_RECORD, room))
            if content is not None:
                room -= len(content)
                left.exits[int(leaf.partition(".")[0])] = content
        room = PIECE
        for folder, leaf in _leaves(job, "spool", STREAM) if places is not None else ():
            name = leaf[: -len(".jsonl")]
            line, offset = (places or {}).get(name, (0, 0))
            piece = _piece(folder, leaf, int(line), int(offset), room, most)
            if piece is not None:
                room -= len(piece.content)
                left.streams[name] = piece
        output = _output(job, TAIL)
        if output is None and OUTPUT in os.listdir(job):
            output = b""  # it exists, but may not be read
        return left._replace(output_tail=output)
    finally:
        os.close(job)


def tail(root: str, token: str, limit: int, allowed: Optional[Sequence[str]] = None) -> bytes:
    """Return the last `limit` bytes of the output that the scheduler captured."""
    try:
        job = _open_job(_open_root(root, allowed), token)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    try:
        return _output(job, limit) or b""
    finally:
        os.close(job)


def _output(job: int, limit: int) -> Optional[bytes]:
    """Return the end of the captured output, from the beginning of a UTF-8 character on."""
    output = _read(job, OUTPUT, -limit)
    return output.lstrip(INSIDE_CHARACTER) if output is not None and len(output) >= limit else output


def _leaves(job: int, name: str, wanted: Pattern[str]) -> Iterator[Tuple[int, str]]:
    """Yield the files of a subfolder of the job folder: its descriptor, and each name."""
    try:
        folder = descend(os.dup(job), [name])
    except (FileNotFoundError, NotADirectoryError):
        return  # also for a link in its place
    try:
        for leaf in sorted(filter(wanted.fullmatch, os.listdir(folder)))[:MAX_RANKS]:
            yield folder, leaf
    finally:
        os.close(folder)


def _piece(folder: int, name: str, line: int, offset: int, room: int, most: int) -> Optional[StreamPart]:
    """Read whole lines behind line number `line`, at most `room` bytes. A line that is longer than PIECE becomes an
    empty one. None: the user has no such file."""
    file = own_file(folder, name)
    if file is None:
        return None
    with file:
        size = min(os.fstat(file.fileno()).st_size, most)
        if offset < 0:
            offset = _ends(file, 0, line, size)
            if offset < 0:
                return StreamPart(b"", line, -1, False, size == most)  # it has fewer lines
        if offset > size:
            return StreamPart(b"", line, offset, False, False)
        file.seek(offset)
        content = file.read(min(room, size - offset))
        end = content.rfind(b"\n") + 1
        if end:
            content = content[:end]
            offset += end
            return StreamPart(content, line + content.count(b"\n"), offset, offset < size, False)
        if offset + len(content) >= size:
            return StreamPart(b"", line, offset, False, size == most)  # the last line is incomplete
        if room < PIECE:
            return StreamPart(b"", line, offset, True, False)
        beyond = _ends(file, offset + len(content), 1, size)
        if beyond < 0:
            return StreamPart(b"", line, offset, False, size == most)
        return StreamPart(b"\n", line + 1, beyond, beyond < size, False)


def _ends(file: BinaryIO, offset: int, lines: int, size: int) -> int:
    """Return the offset at which the `lines`-th line from `offset` on ends; -1 if it does not end before `size`."""
    file.seek(offset)
    while lines > 0 and offset < size:
        block = file.read(min(BLOCK, size - offset))
        if not block:
            return -1
        newlines = block.count(b"\n")
        if newlines >= lines:
            place = -1
            for _ in range(lines):
                place = block.index(b"\n", place + 1)
            return offset + place + 1
        lines -= newlines
        offset += len(block)
    return offset if lines == 0 else -1


def _read(folder: int, name: str, limit: int) -> Optional[bytes]:
    """Read the first `limit` bytes of the user's own plain file (negative: the last ones); None for anything else."""
    file = own_file(folder, name)
    if file is None:
        return None
    with file:
        file.seek(max(0, os.fstat(file.fileno()).st_size + limit) if limit < 0 else 0)
        return file.read(abs(limit))


def forget(root: str, token: str, allowed: Optional[Sequence[str]] = None) -> None:
    """Remove the job folder, and now and then shared files that no job needs; links in it are removed, never followed.
    Raises RequestFailed when something stays."""
    try:
        root_fd = _open_root(root, allowed)
    except FileNotFoundError:
        return
    try:
        try:
            job = _open_job(os.dup(root_fd), token)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            os.unlink(token, dir_fd=root_fd)  # a link; in the sticky folder only its owner can remove it
            return
        try:
            cache_dirs = cache_dirs_of(job)
            _empty(job, job, 0)
        finally:
            os.close(job)
        os.rmdir(token, dir_fd=root_fd)
        for cache_dir in cache_dirs:
            try:
                sweep(root_fd, cache_dir)
            except OSError:
                pass  # the job's folder is gone, which is what was asked; the next one that goes takes up the rest
    finally:
        os.close(root_fd)


def _empty(folder: int, top: int, depth: int) -> None:
    os.fchmod(folder, 0o700)
    while True:
        names = os.listdir(folder)
        if not names:
            return
        for name in names:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
            elif depth > 100:  # one descriptor per level, so deep folders are moved up and emptied there
                os.rename(name, ".deep-%d" % os.stat(name, dir_fd=folder).st_ino, src_dir_fd=folder, dst_dir_fd=top)
            else:
                try:
                    inner = os.open(name, SUBFOLDER, dir_fd=folder)
                except PermissionError:
                    os.chmod(name, 0o700, dir_fd=folder)  # if it became a link: it changes only files of the same user
                    inner = os.open(name, SUBFOLDER, dir_fd=folder)
                try:
                    _empty(inner, top, depth + 1)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=folder)
