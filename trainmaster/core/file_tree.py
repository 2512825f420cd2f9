"""Lists and copies folders of checkpoints.

Links that lead to a place inside the folder are kept as links; both names stand in the list of files. What other links
lead to is copied.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import posixpath
import stat
from pathlib import Path
from typing import Collection, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Tuple

from trainmaster.core.errors import CheckpointError

logger = logging.getLogger("trainmaster.core")

MOST_NAMES = 1_000_000  # as many as the master lists
_COPIED_AT_ONCE = 1 << 26  # bytes
_NO_LINKS: Mapping[str, str] = {}


def list_files(folder: Path) -> Dict[str, int]:
    """List everything below a folder: relative path -> size in bytes; folders end with "/" and have size 0.

    Links are followed, but none to a folder that leads to it. Raises CheckpointError for a link to nothing outside, for
    one to a folder around this one, and for names that are no text.
    """
    files: Dict[str, int] = {}
    top = os.stat(str(folder))
    waiting: List[Tuple[str, FrozenSet[Tuple[int, int]]]] = [("", frozenset({(top.st_dev, top.st_ino)}))]
    while waiting:
        relative, above = waiting.pop()
        for name in sorted(os.listdir(str(folder / relative))):
            path = relative + name
            status = _status(folder, path)
            if status is None:
                continue
            if not stat.S_ISDIR(status.st_mode):
                files[path] = status.st_size
            elif (status.st_dev, status.st_ino) not in above:
                files[path + "/"] = 0
                waiting.append((path + "/", above | {(status.st_dev, status.st_ino)}))
            if len(files) > MOST_NAMES:
                raise CheckpointError(
                    "%s holds more than %d files, what its links lead to included" % (folder, MOST_NAMES)
                )
    return files


def inner_links(folder: Path) -> Dict[str, str]:
    """Find the links that lead to a place inside the folder: relative path -> the relative path in the link."""
    root = os.path.realpath(str(folder))
    return {path: text for path, text in _links(root) if text is not None}


def kept_links(links: Mapping[str, str], names: Mapping[str, int], everything: bool) -> Dict[str, str]:
    """Choose the links that can stay links where `names` are copied: what they lead to is copied too. `everything`:
    nothing was left out, so that links to nothing and to folders around them stay as well."""
    kept = {}
    for path, text in links.items():
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
        if path in names:
            stays = goal in names
        elif path + "/" in names:
            below = [name[len(path) :] for name in names if name.startswith(path + "/")]
            stays = all(goal + rest in names for rest in below)
        else:
            stays = everything
        if stays:
            kept[path] = text
    return kept


def without_linked(names: Iterable[str], links: Collection[str]) -> Iterator[str]:
    """Yield the names that are not reached through one of `links`."""
    for name in names:
        parts = name.rstrip("/").split("/")
        if not any("/".join(parts[:depth]) in links for depth in range(1, len(parts) + 1)):
            yield name


def copy_files(source: Path, target: Path, names: Iterable[str], links: Mapping[str, str] = _NO_LINKS) -> None:
    """Copy the entries `names` of `list_files`, then make `links`; each file is durable when this returns."""
    import shutil  # only now: it takes as long to import as the rest of this package

    for name in sorted(without_linked(names, links)):
        path = target / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():  # of an earlier download
            path.unlink()
        original = str(source / name)
        if not _copy_sparse(original, str(path)):
            shutil.copyfile(original, str(path))
        shutil.copymode(original, str(path))
        _fsync(path)
    for name in sorted(links):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        os.symlink(links[name], str(path))


def settle_links(folder: Path) -> None:
    """Make a folder independent of its place: links that stay inside become relative, others the files that they lead
    to. Raises CheckpointError."""
    root = os.path.realpath(str(folder))
    for path, text in list(_links(root)):
        link = Path(root) / path
        if text is not None:
            if text != os.readlink(str(link)):
                link.unlink()
                os.symlink(text, str(link))
            continue
        _status(Path(root), path)
        goal = Path(os.path.realpath(str(link)))
        names = list_files(goal) if goal.is_dir() else {}
        link.unlink()
        if goal.is_dir():
            link.mkdir()
            copy_files(goal, link, names)
        else:
            copy_files(goal.parent, link.parent, [goal.name])
            os.rename(str(link.parent / goal.name), str(link))


def make_durable(folder: Path, names: Iterable[str]) -> None:
    """Flush the named files and their folders to disk."""
    folders = {folder}
    for name in names:
        if name.endswith("/"):
            folders.add(folder / name)
        else:
            _fsync(folder / name)
    for each in folders:
        _fsync(each)


def _links(root: str) -> Iterator[Tuple[str, Optional[str]]]:
    """Yield the links below a folder, which is named by its real path: relative path, and the relative path that they
    lead to inside of it; None for those that lead out."""
    for current, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(current, name)
            if not os.path.islink(path):
                continue
            text, real = os.readlink(path), os.path.realpath(path)
            inside = real == root or real.startswith(root + os.sep)
            if inside and not _plain(text, current, root, real):
                text = os.path.relpath(real, current)
            yield os.path.relpath(path, root), text if inside else None


def _plain(text: str, current: str, root: str, real: str) -> bool:
    """Whether a link's text means the same wherever the folder is copied to, read from left to right."""
    if os.path.isabs(text):
        return False
    goal = os.path.normpath(os.path.join(current, text))
    return (goal == root or goal.startswith(root + os.sep)) and os.path.realpath(goal) == real


def _status(folder: Path, path: str) -> Optional[os.stat_result]:
    """Return the status of what a path leads to; None for what is left out of the list. Raises CheckpointError."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise CheckpointError(
            "the name of the file %r is not UTF-8, and cannot be listed in a checkpoint: rename it" % path
        ) from None
    place = os.path.join(str(folder), path)
    status = _status_behind(folder, path, place) if os.path.islink(place) else os.stat(place)
    if status is None:
        return None
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        logger.warning("%s is no file and no folder: it is left out of the checkpoint", path)
        return None
    return status


def _status_behind(folder: Path, path: str, place: str) -> Optional[os.stat_result]:
    """Return the status of what a link leads to; None for nothing inside the folder. Raises CheckpointError."""
    root, real = os.path.realpath(str(folder)), os.path.realpath(place)
    inside = real == root or real.startswith(root + os.sep)
    if not inside and (root + os.sep).startswith(real.rstrip(os.sep) + os.sep):
        raise CheckpointError("the link %s leads to %s, which holds the checkpoint itself: remove it" % (path, real))
    try:
        return os.stat(place)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        if not inside:
            raise CheckpointError(
                "the link %s leads to %s, where nothing is: remove it, or save what it should lead to"
                % (path, os.readlink(place))
            ) from None
        return None


def _copy_sparse(source: str, target: str) -> bool:
    """Copy a file that has holes without filling them. False, with nothing done, for one without."""
    with open(source, "rb") as original:
        status = os.fstat(original.fileno())
        if status.st_blocks * 512 >= status.st_size:
            return False
        with open(target, "wb") as copy, contextlib.suppress(OSError):
            begin = 0
            os.ftruncate(copy.fileno(), status.st_size)
            while begin < status.st_size:
                try:
                    begin = os.lseek(original.fileno(), begin, os.SEEK_DATA)
                except OSError as error:
                    return error.errno == errno.ENXIO  # nothing but a hole is left
                end = os.lseek(original.fileno(), begin, os.SEEK_HOLE)
                original.seek(begin)
                copy.seek(begin)
                while begin < end:
                    block = original.read(min(_COPIED_AT_ONCE, end - begin))
                    copy.write(block)
                    begin += len(block) or end
                copy.flush()
            return True
    return False


def _fsync(path: Path) -> None:
    file = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
