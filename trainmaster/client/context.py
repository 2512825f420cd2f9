"""The files that travel with an experiment: a folder, less what `.detignore` names."""

from __future__ import annotations

import base64
import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.client.errors import ClientError

LIMIT = 95 * 1024 * 1024  # bytes that a master takes
REGULAR, FOLDER = ord("0"), ord("5")  # tar's type characters


@dataclass(frozen=True)
class Rule:
    """One line of `.detignore`, with gitignore's meaning."""

    pattern: str
    negated: bool
    folders_only: bool
    anchored: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.anchored:
            return _match(path, self.pattern)
        return any(_match(tail, self.pattern) for tail in _tails(path))


def parse_rules(text: str) -> list[Rule]:
    rules = []
    for raw in text.splitlines():
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        folders_only = line.endswith("/")
        line = line.rstrip("/")
        rules.append(Rule(line.lstrip("/"), negated, folders_only, "/" in line))
    return rules


def collect(root: Path, includes: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """The folder (or single file) as the master wants it: path, base64 content, type, mode, mtime of each entry.

    Raises ClientError for a missing path, and for too many bytes with the largest file named.
    """
    entries: list[dict[str, Any]] = []
    sizes: dict[str, int] = {}
    for base in (root, *includes):
        if not base.exists():
            raise ClientError(f"{base} does not exist; the second argument is the folder with your training code.")
        for path, name in _walk(base):
            entry, size = _entry(path, name)
            entries.append(entry)
            sizes[name] = size
            if sum(sizes.values()) > LIMIT:
                largest = max(sizes, key=lambda key: sizes[key])
                raise ClientError(
                    f"{base} holds more than {LIMIT // 2**20} MB. The largest file is {largest} "
                    f"({sizes[largest] // 2**20} MB): "
                    "list what the training does not need in .detignore."
                )
    return entries


def _walk(base: Path) -> Iterator[tuple[Path, str]]:
    if base.is_file():
        yield base, base.name
        return
    ignore = base / ".detignore"
    rules = parse_rules(ignore.read_text()) if ignore.is_file() else []
    for folder, names, files in os.walk(base, followlinks=True):
        here = Path(folder)
        names[:] = sorted(n for n in names if not _ignored((here / n).relative_to(base).as_posix(), True, rules))
        for name in names:
            yield here / name, (here / name).relative_to(base).as_posix()
        for name in sorted(files):
            relative = (here / name).relative_to(base).as_posix()
            if not _ignored(relative, False, rules):
                yield here / name, relative


def _ignored(path: str, is_folder: bool, rules: Sequence[Rule]) -> bool:
    if path.rpartition("/")[2] in ("__pycache__", ".git", ".DS_Store"):
        return True
    ignored = False
    for rule in rules:
        if rule.matches(path, is_folder):
            ignored = not rule.negated
    return ignored


def _entry(path: Path, name: str) -> tuple[dict[str, Any], int]:
    found = path.stat()
    entry = {
        "path": name,
        "mode": found.st_mode & 0o777,
        "mtime": str(int(found.st_mtime)),
        "uid": 0,
        "gid": 0,
    }
    if path.is_dir():
        return {**entry, "type": FOLDER, "content": ""}, 0
    if not path.is_file():
        raise ClientError(f"{path} is neither a file nor a folder and cannot be sent; name it in .detignore.")
    data = path.read_bytes()
    return {**entry, "type": REGULAR, "content": base64.b64encode(data).decode()}, len(data)


def _match(path: str, pattern: str) -> bool:
    """gitignore's globbing: `*` stays within one part, `**` crosses them."""
    return _match_parts(path.split("/"), pattern.split("/"))


def _match_parts(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match_parts(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _match_parts(parts[1:], pattern[1:])


def _tails(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[i:]) for i in range(len(parts)))
