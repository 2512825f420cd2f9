"""Collects the files that are sent with an experiment or task: a folder without what its `.detignore` names."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from trainmaster.client import ignore
from trainmaster.client.connection import Streamed
from trainmaster.client.errors import ClientError

LIMIT = 95 * 1024 * 1024  # bytes that a master accepts unless its administrator has lowered the limit
REGULAR, FOLDER = ord("0"), ord("5")  # tar's type characters
PIECE = 3 * 2**16  # bytes read at once; a multiple of three, for base64
MISSING = "the second argument is the folder with your training code"


@dataclass(frozen=True)
class ContextFile:
    """A file or folder to send: its path here, and its name within the experiment. `size` is in bytes."""

    path: Path
    name: str
    is_folder: bool
    mode: int
    modified: int
    size: int


@dataclass(frozen=True)
class ContextFolder:
    """The files to send. They are read while they are sent, a piece at a time, however large they are. `root` is the
    folder or file of the code among them."""

    found: tuple[ContextFile, ...] = ()
    root: Path | None = None

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield entries in the form of the API: path, base64 content, type, mode, mtime of each."""
        for file in self.found:
            content = b"".join(_pieces(file))
            yield {**_head(file), "content": content.decode()}

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.size for file in self.found)

    def within(self, fields: Mapping[str, Any], key: str = "modelDefinition") -> Streamed:
        """Return a request's body with `fields`, and the entries under `key`."""
        start = json.dumps({**fields, key: []}).encode()[:-2]
        parts = [(_opened(file, first=i == 0), file) for i, file in enumerate(self.found)]
        length = len(start) + sum(len(lead) + -(-file.size // 3) * 4 + 2 for lead, file in parts) + 2

        def pieces() -> Iterator[bytes]:
            yield start
            for lead, file in parts:
                yield lead
                yield from _pieces(file)
                yield b'"}'
            yield b"]}"

        return Streamed(length, pieces)


def collect(
    root: Path | None, includes: Sequence[Path] = (), limit: Callable[[], int] = lambda: LIMIT
) -> ContextFolder:
    """Return the files of a folder, without what its `.detignore` names.

    The content of `root` is placed in the training's working folder, and each include beside it under its own name.
    `limit` returns how many bytes the master accepts; it is called only for more than LIMIT bytes.

    Raises ClientError for a missing path, for two entries of one name, for a file that cannot be read, and for too many
    bytes (naming the largest file).
    """
    files = list(_walk(root, "")) if root is not None else []
    for include in includes:
        files += _walk(include, include.resolve().name)
    _check(files, limit)
    return ContextFolder(tuple(files), root)


def _check(files: Sequence[ContextFile], limit: Callable[[], int]) -> None:
    names: set[str] = set()
    for file in files:
        if file.name in names and "/" not in file.name:
            raise ClientError(f"Two files to send are called {file.name}; rename one, or leave out its --include.")
        names.add(file.name)
    total = sum(file.size for file in files)
    if total > LIMIT and total > (accepted := limit()):
        largest = max(files, key=lambda file: file.size)
        raise ClientError(
            f"The files to send have {_megabytes(total)} MB; the master accepts {accepted // 2**20} MB. The largest is "
            f"{largest.name} ({_megabytes(largest.size)} MB): list what the training does not need in .detignore."
        )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f}"


def _walk(base: Path, prefix: str) -> Iterator[ContextFile]:
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
                raise ClientError(f"{here / name} is a link to a folder that contains it; name it in .detignore.")
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


def _found(path: Path, name: str) -> ContextFile:
    try:
        status = path.stat()
    except OSError as error:
        _unreadable(error)
    if not (path.is_dir() or path.is_file()):
        raise ClientError(f"{path} is neither a file nor a folder and cannot be sent; name it in .detignore.")
    size = 0 if path.is_dir() else status.st_size
    return ContextFile(path, name, path.is_dir(), status.st_mode & 0o777, int(status.st_mtime), size)


def _head(file: ContextFile) -> dict[str, Any]:
    """Return an entry without its content."""
    return {
        "path": file.name,
        "type": FOLDER if file.is_folder else REGULAR,
        "mode": file.mode,
        "mtime": str(file.modified),
        "uid": 0,
        "gid": 0,
    }


def _opened(file: ContextFile, *, first: bool) -> bytes:
    """Return an entry as JSON, up to the opening quotation mark of its content."""
    return (b"" if first else b",") + json.dumps({**_head(file), "content": ""}).encode()[:-2]


def _pieces(entry: ContextFile) -> Iterator[bytes]:
    """Return the content in base64. Raises ClientError for a file that cannot be read, or whose size has changed."""
    if entry.is_folder:
        return
    try:
        with entry.path.open("rb") as file:
            left = entry.size
            while left:
                piece = _read(file, min(left, PIECE))
                if not piece:
                    raise ClientError(f"{entry.path} became shorter while it was sent; try again.")
                left -= len(piece)
                yield base64.b64encode(piece)
            if file.read(1):
                raise ClientError(f"{entry.path} became longer while it was sent; try again.")
    except OSError as error:
        _unreadable(error)


def _read(file: BinaryIO, size: int) -> bytes:
    """`size` bytes, or none if there are fewer: a buffered file returns fewer only at its end."""
    piece = file.read(size)
    return piece if len(piece) == size else b""
