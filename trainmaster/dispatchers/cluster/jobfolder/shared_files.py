"""Files that many jobs of one account have in common, in a folder beside their job folders:
ROOT/.shared-ACCOUNT/SHA256/NAME, with a link NAME in each job folder.

The folder is the account's own and closed to all others, so that nobody can put code into another account's job. A file
is checked whenever a job is staged, replaced when it is not what its name says, and removed when no job folder has a
link to it. Nothing is locked: staging checks the files again when the job folder is complete, and removal renames a
file first and then checks whether a job has linked it meanwhile.

It is part of the helper program as well: Python 3.8 and its standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from trainmaster.dispatchers.cluster.jobfolder.own_files import SUBFOLDER, TOKEN, RequestRefused, own_file, replace_in

CACHE_DIR = re.compile(r"\.shared-[A-Za-z0-9_.-]{1,64}")
SHA256 = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
LINK = re.compile(r"\.\./(%s)/(%s)/(%s)" % (CACHE_DIR.pattern, SHA256.pattern, NAME.pattern))
UNUSED = 3600.0  # seconds since a file was last staged, after which it may be removed; and between two looks


class SharedContent(NamedTuple):
    """A shared file as a caller asks for it. `content` None: the caller hopes that it is there."""

    sha256: str
    content: Optional[bytes] = None


class ForeignCache(Exception):
    """The folder of shared files belongs to another account, or others can write into it."""


def link_to(cache_dir: str, sha256: str, name: str) -> str:
    """Return what the link in a job folder says."""
    return "../%s/%s/%s" % (cache_dir, sha256, name)


def provide(root: int, cache_dir: str, files: Mapping[str, SharedContent]) -> List[str]:
    """Store the files in the folder `cache_dir` below the opened folder `root`. Return the names of those that are
    missing because their content was not given. Raises ForeignCache, RequestRefused, OSError."""
    for name, file in files.items():
        if not (CACHE_DIR.fullmatch(cache_dir) and SHA256.fullmatch(file.sha256) and NAME.fullmatch(name)):
            raise RequestRefused("%r is not the name of a shared file" % link_to(cache_dir, file.sha256, name))
    if not files:
        return []
    folder = _open_cache_dir(root, cache_dir)
    try:
        return [name for name, file in files.items() if not _is_cached(folder, name, file)]
    finally:
        os.close(folder)


def exist(root: int, cache_dir: str, files: Mapping[str, SharedContent]) -> bool:
    """Whether all files are there. Their content is not read."""
    try:
        for name, file in files.items():
            os.stat(link_to(cache_dir, file.sha256, name)[3:], dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def link(job: int, cache_dir: str, files: Mapping[str, SharedContent]) -> None:
    """Make a link to each file in the opened job folder, in the place of what is there. Raises OSError."""
    for name, file in files.items():
        draft = ".%s.%s" % (name, secrets.token_hex(4))
        os.symlink(link_to(cache_dir, file.sha256, name), draft, dir_fd=job)
        os.rename(draft, name, src_dir_fd=job, dst_dir_fd=job)


def cache_dirs_of(job: int) -> Set[str]:
    """Return the folders of shared files that the links of an opened job folder lead to."""
    folders = set()
    for name in os.listdir(job):
        match = LINK.fullmatch(_target(name, job))
        if match:
            folders.add(match.group(1))
    return folders


def sweep(root: int, cache_dir: str) -> None:
    """Remove what no job folder has a link to and nobody has staged for UNUSED seconds. Looks once in UNUSED seconds.
    Raises OSError."""
    try:
        folder = _open_cache_dir(root, cache_dir, make=False)
    except (FileNotFoundError, NotADirectoryError, ForeignCache):
        return
    try:
        if time.time() - os.fstat(folder).st_mtime < UNUSED:
            return
        os.utime(folder)
        old = {name: names for name, names in _contents(folder).items() if _unused(folder, name)}
        linked = _linked(root, {name for names in old.values() for name in names}) if old else set()
        for sha256, names in old.items():
            if not any(link_to(cache_dir, sha256, name) in linked for name in names):
                _remove(folder, sha256)
    finally:
        os.close(folder)


# -- inside ------------------------------------------------------------------------------------------------------------


def _open_cache_dir(root: int, cache_dir: str, make: bool = True) -> int:
    if make:
        try:
            os.mkdir(cache_dir, 0o700, dir_fd=root)
        except FileExistsError:
            pass
    try:
        folder = os.open(cache_dir, SUBFOLDER, dir_fd=root)
    except (NotADirectoryError, PermissionError):
        raise ForeignCache("%s is not a folder of this account" % cache_dir) from None
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(folder)
        raise ForeignCache("%s belongs to another account, or is open to others" % cache_dir)
    return folder


def _is_cached(folder: int, name: str, file: SharedContent) -> bool:
    """Whether the file is there, after it was written where it was missing and its content is known."""
    if file.content is None:
        try:
            place = os.open(file.sha256, SUBFOLDER, dir_fd=folder)
        except FileNotFoundError:
            return False
    else:
        if hashlib.sha256(file.content).hexdigest() != file.sha256:
            raise RequestRefused("the content of the shared file %s is not what its name says" % name)
        try:
            os.mkdir(file.sha256, 0o700, dir_fd=folder)
        except FileExistsError:
            pass
        place = os.open(file.sha256, SUBFOLDER, dir_fd=folder)
    try:
        if not _is_whole(place, name, file.sha256):
            if file.content is None:
                return False
            replace_in(place, name, file.content, 0o400, ".%s.%s" % (name, secrets.token_hex(8)))
        os.utime(place)  # when it was last used
        return True
    finally:
        os.close(place)


# Digests of files that this process has read, by device, inode, size and times: a file that is written gets another
# time, so that an archive of the user's is not read again for each of ten thousand jobs.
_DIGESTS: Dict[Tuple[int, ...], str] = {}


def _is_whole(place: int, name: str, sha256: str) -> bool:
    opened = own_file(place, name)
    if opened is None:
        return False
    with opened:
        facts = os.fstat(opened.fileno())
        key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if key not in _DIGESTS:
            digest = hashlib.sha256()
            for block in iter(lambda: opened.read(1024**2), b""):
                digest.update(block)
            if len(_DIGESTS) >= 10_000:
                _DIGESTS.clear()
            _DIGESTS[key] = digest.hexdigest()
    return _DIGESTS.get(key) == sha256


def _unused(folder: int, name: str) -> bool:
    return time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > UNUSED


def _contents(folder: int) -> Dict[str, List[str]]:
    """Return the names in each folder of the opened folder."""
    contents = {}
    for entry in os.listdir(folder):
        try:
            place = os.open(entry, SUBFOLDER, dir_fd=folder)
        except (NotADirectoryError, FileNotFoundError):
            continue
        try:
            contents[entry] = os.listdir(place)
        finally:
            os.close(place)
    return contents


def _linked(root: int, names: Set[str]) -> Set[str]:
    """Return what the links of these names say in all job folders that this account can read."""
    tokens = filter(TOKEN.fullmatch, os.listdir(root))
    return {_target("%s/%s" % (token, name), root) for token in tokens for name in names}


def _target(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # not a link, gone by now, or in the folder of another account
        return ""


def _remove(folder: int, name: str) -> None:
    """Take a folder of shared files out of the way, and remove it unless it was used a moment ago."""
    aside = ".old-%s" % secrets.token_hex(8)
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    if SHA256.fullmatch(name) and not _unused(folder, aside):
        try:
            os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except OSError:
            pass  # it has been written again
    place = os.open(aside, SUBFOLDER, dir_fd=folder)
    try:
        for each in os.listdir(place):
            os.unlink(each, dir_fd=place)
    finally:
        os.close(place)
    os.rmdir(aside, dir_fd=folder)
