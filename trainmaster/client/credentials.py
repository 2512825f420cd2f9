"""Who one is to which master: the token store that Determined's client keeps too (`auth.json`, version 2)."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainmaster.client.errors import ClientError


def folder() -> Path:
    """Where the store lies: DET_DEBUG_CONFIG_PATH, XDG_CONFIG_HOME or ~/.config, and `determined` below it."""
    told = os.environ.get("DET_DEBUG_CONFIG_PATH") or os.environ.get("XDG_CONFIG_HOME")
    return (Path(told) if told else Path.home() / ".config") / "determined"


def active_user(url: str) -> str | None:
    found: str | None = _masters(_read()).get(url, {}).get("active_user")
    return found


def token(url: str, user: str) -> str | None:
    found: str | None = _masters(_read()).get(url, {}).get("tokens", {}).get(user)
    return found


def remember(url: str, user: str, token: str, *, active: bool) -> None:
    with _changing() as store:
        entry = store["masters"].setdefault(url, {"tokens": {}})
        entry.setdefault("tokens", {})[user] = token
        if active:
            entry["active_user"] = user


def forget(url: str, user: str) -> None:
    with _changing() as store:
        entry = store["masters"].get(url, {})
        entry.get("tokens", {}).pop(user, None)
        if entry.get("active_user") == user:
            entry["active_user"] = None


def _masters(store: dict[str, Any]) -> dict[str, Any]:
    found = store.get("masters")
    return found if isinstance(found, dict) else {}


def _read() -> dict[str, Any]:
    try:
        found = json.loads((folder() / "auth.json").read_text())
    except FileNotFoundError:
        return {"version": 2, "masters": {}}
    except (OSError, ValueError) as error:
        raise ClientError(
            f"The token store {folder() / 'auth.json'} cannot be read ({error}); remove it and log in again."
        ) from None
    # Older versions of the store are of clients that are gone: one log-in replaces them.
    return found if isinstance(found, dict) and found.get("version") == 2 else {"version": 2, "masters": {}}


@contextmanager
def _changing() -> Iterator[dict[str, Any]]:
    where = folder()
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (where / "auth.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = _read()
        store.setdefault("masters", {})
        yield store
        temporary = where / f"auth.json.{os.getpid()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(store, file, indent=4)
        temporary.replace(where / "auth.json")
