"""Token store: the user's sessions with each master, in the file that Determined's client uses too (`auth.json`).

Version 2 is `{"version": 2, "masters": {<canonical URL>: {"active_user": name, "tokens": {name: token}}}}`, under the
lock file `auth.json.lock` (flock). Determined's client deletes a store with any other content, so we add nothing: the
marks that distinguish this client from others that guess passwords are in `client-marks.json`,
`{<canonical URL>: {name: mark}}`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainmaster.client.address import canonical_url
from trainmaster.client.errors import ClientError

VERSION = 2
MARKS = "client-marks.json"


def folder() -> Path:
    """Return the store's folder: DET_DEBUG_CONFIG_PATH itself, else `determined` in XDG_CONFIG_HOME or in ~/.config."""
    if configured := os.environ.get("DET_DEBUG_CONFIG_PATH"):
        return Path(configured)
    configs = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configs) if configs else Path.home() / ".config") / "determined"


def active_user(url: str) -> str | None:
    """Return the user who logged in last. Raises ClientError when the store cannot be read, as do the functions
    below."""
    user: str | None = _read()["masters"].get(url, {}).get("active_user")
    return user


def token(url: str, user: str) -> str | None:
    """Return the stored session token of `user`; None if there is none."""
    token_of_user: str | None = _read()["masters"].get(url, {}).get("tokens", {}).get(user)
    return token_of_user


def users(url: str) -> list[str]:
    """All users with a stored session for that master."""
    return sorted(_read()["masters"].get(url, {}).get("tokens", {}))


def remember(url: str, user: str, token: str, *, active: bool) -> None:
    """Store a session; `active` makes commands act as its user from now on."""
    with _changing() as masters:
        entry = masters.setdefault(url, {})
        entry.setdefault("tokens", {})[user] = token
        if active:
            entry["active_user"] = user


def forget(url: str, user: str) -> None:
    """Remove a session. The active user stays the same: the next command asks that user to log in."""
    with _changing() as masters:
        masters.get(url, {}).get("tokens", {}).pop(user, None)


def mark(url: str, user: str) -> str:
    """Return the mark that an earlier log-in of `user` returned; empty if there was none."""
    mark_of_file = _marks().get(url)
    return str(mark_of_file.get(user) or "") if isinstance(mark_of_file, dict) else ""


def remember_mark(url: str, user: str, mark: str) -> None:
    """Store a mark for the next log-in. Raises ClientError."""
    if not mark:
        return

    def changed() -> dict[str, Any]:
        marks = _marks()
        of_master = marks.get(url)
        return {**marks, url: {**(of_master if isinstance(of_master, dict) else {}), user: mark}}

    store(MARKS, changed)


def store(name: str, changed: Callable[[], dict[str, Any]]) -> None:
    """Replace a file of the folder by what `changed` returns, one writer at a time. Raises ClientError."""
    with _locked() as where:
        _write(where, name, changed())


def _marks() -> dict[str, Any]:
    try:
        data = json.loads((folder() / MARKS).read_text())
    except (OSError, ValueError):  # a lost mark only makes the next log-in wait longer
        return {}
    return data if isinstance(data, dict) else {}


def _read() -> dict[str, Any]:
    path = folder() / "auth.json"
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {"version": VERSION, "masters": {}}
    except (OSError, ValueError) as error:
        raise ClientError(f"The token store {path} cannot be read ({error}). Remove it and log in again.") from None
    version = data.get("version", 0) if isinstance(data, dict) else None
    if version == 0:
        return {"version": VERSION, "masters": {}}  # its token does not name its master; the next log-in replaces it
    if version == 1:
        return {"version": VERSION, "masters": _canonical(data.get("masters") or {})}
    if version != VERSION or not isinstance(data.get("masters", {}), dict):
        raise ClientError(
            f"The token store {path} has a version that this client does not know. "
            "Set DET_DEBUG_CONFIG_PATH to another folder, or remove the file and log in again."
        )
    data.setdefault("masters", {})
    return dict(data)


def _canonical(masters: dict[str, Any]) -> dict[str, Any]:
    """Return the masters of a version 1 store, which has addresses as users wrote them."""
    merged: dict[str, Any] = {}
    for address, entry in masters.items():
        try:
            kept = merged.setdefault(canonical_url(address), {"tokens": {}})
        except ClientError:
            continue
        kept["tokens"] |= entry.get("tokens") or {}
        if entry.get("active_user"):
            kept.setdefault("active_user", entry["active_user"])
    return merged


@contextmanager
def _changing() -> Iterator[dict[str, Any]]:
    """Yield the `masters` of the store, written back at the end of the block; one writer at a time."""
    with _locked() as where:
        tokens = _read()
        yield tokens["masters"]
        _write(where, "auth.json", tokens)


@contextmanager
def _locked() -> Iterator[Path]:
    """Yield the folder of the store, locked for one writer at a time."""
    where = folder()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (where / "auth.json.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield where
    except OSError as error:
        raise ClientError(f"The token store in {where} cannot be written ({error.strerror or error}).") from None


def _write(where: Path, name: str, content: dict[str, Any]) -> None:
    """Write a file atomically, readable for its owner only."""
    temporary = where / f"{name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)  # left by a process that died, perhaps with another mode
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=4, sort_keys=True)
    temporary.replace(where / name)
