"""The files that travel with an experiment: a folder, less what `.detignore` names."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from trainmaster.client import ignore
from trainmaster.client.errors import ClientError

LIMIT = 95 * 1024 * 1024  # bytes that every master takes whose administrator has not lowered it
REGULAR, FOLDER = ord("0"), ord("5")  # tar's type characters
MISSING = "the second argument is the folder with your training code"


@dataclass(frozen=True)
class Found:
    """A file or folder on its way: where it lies, and its name with the experiment. `size` is in bytes."""

    path: Path
    name: str
    is_folder: bool
    mode: int
    modified: int
    size: int


def collect(
    root: Path | None, includes: Sequence[Path] = (), limit: Callable[[], int] = lambda: LIMIT
) -> list[dict[str, Any]]:
    """The folder as the master wants it: path, base64 content, type, mode, mtime of each entry.

    The content of `root` comes to lie in the training's working folder; an include comes beside it under its own name.
    `limit` tells how many bytes the master takes; it is asked only for more than LIMIT.

    Raises ClientError for a missing path, for two things of one name, for what cannot be read, and for too many
    bytes with the largest file named.
    """
    found = list(_walk(root, "")) if root is not None else []
    for include in includes:
        found += _walk(include, include.resolve().name)
    _check(found, limit)
    return [_entry(one) for one in found]


def total_size(files: Sequence[dict[str, Any]]) -> int:
    """Bytes of the files that `collect` made."""
    return sum(len(file["content"]) // 4 * 3 - file["content"].count("=", -2) for file in files)


def _check(found: Sequence[Found], limit: Callable[[], int]) -> None:
    names: set[str] = set()
    for one in found:
        if one.name in names and "/" not in one.name:
            raise ClientError(f"Two things to send are called {one.name}; rename one, or leave out its --include.")
        names.add(one.name)
    total = sum(one.size for one in found)
    if total > LIMIT and total > (taken := limit()):
        largest = max(found, key=lambda one: one.size)
        raise ClientError(
            f"The files to send have {_megabytes(total)} MB; the master takes {taken // 2**20} MB. The largest is "
            f"{largest.name} ({_megabytes(largest.size)} MB): list what the training does not need in .detignore."
        )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f}"


def _walk(base: Path, prefix: str) -> Iterator[Found]:
    if not base.exists():
        raise ClientError(f"{base} does not exist; {MISSING}.")
    if base.is_file():
        yield _found(base, base.name)
        return
    if prefix:
        yield _found(base, prefix)
    lead = f"{prefix}/" if prefix else ""
    rules = ignore.parse([*ignore.ALWAYS, *_ignore_file(base)])
    for folder, names, files in os.walk(base, followlinks=True, onerror=_unreadable):
        here = Path(folder)
        relative = here.relative_to(base).as_posix()
        inner = "" if relative == "." else f"{relative}/"
        names[:] = sorted(n for n in names if not ignore.ignored(inner + n, True, rules))
        for name in names:
            if (here / name).is_symlink() and here.resolve().is_relative_to((here / name).resolve()):
                raise ClientError(f"{here / name} is a link to a folder that holds it; name it in .detignore.")
            yield _found(here / name, lead + inner + name)
        for name in sorted(files):
            if name != ".detignore" and not ignore.ignored(inner + name, False, rules):
                yield _found(here / name, lead + inner + name)


def _ignore_file(base: Path) -> list[str]:
    path = base / ".detignore"
    try:
        return path.read_text().splitlines() if path.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}."
        ) from None


def _unreadable(error: OSError) -> NoReturn:
    raise ClientError(f"{error.filename} cannot be read: {error.strerror}. Name it in .detignore to leave it out.")


def _found(path: Path, name: str) -> Found:
    try:
        seen = path.stat()
    except OSError as error:
        _unreadable(error)
    if not (path.is_dir() or path.is_file()):
        raise ClientError(f"{path} is neither a file nor a folder and cannot be sent; name it in .detignore.")
    size = 0 if path.is_dir() else seen.st_size
    return Found(path, name, path.is_dir(), seen.st_mode & 0o777, int(seen.st_mtime), size)


def _entry(found: Found) -> dict[str, Any]:
    content = b""
    if not found.is_folder:
        try:
            content = found.path.read_bytes()
        except OSError as error:
            _unreadable(error)
    return {
        "path": found.name,
        "type": FOLDER if found.is_folder else REGULAR,
        "content": base64.b64encode(content).decode(),
        "mode": found.mode,
        "mtime": str(found.modified),
        "uid": 0,
        "gid": 0,
    }
