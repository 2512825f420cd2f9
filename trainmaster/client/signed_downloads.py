"""Downloads the files of a checkpoint from an object store, by addresses that the master signs."""

from __future__ import annotations

import hashlib
import http.client
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainmaster.client.errors import ClientError

WORKERS = 8
_TRIES = 4
_TIMEOUT = 60.0  # seconds of each wait on the network
_FIRST_TIMEOUT = 5.0  # of the first file: who is outside of a site often gets no answer at all
_BLOCK = 1 << 20  # bytes


class Unreached(Exception):
    """The store cannot be reached from here."""


def download(page: Callable[[Mapping[str, str]], Mapping[str, Any]], target: Path) -> None:
    """Download all files into an empty folder.

    Args:
        page: Asks the master for a list of the files, with `after` (a path) for what follows it.
        target: The folder.

    Raises:
        Unreached: The first file cannot be had from here; nothing is in the folder then.
        ClientError: The store refuses, or a file is not what was stored.
        OSError: The connection breaks again and again, or the folder cannot be written.
    """
    after: str | None = ""
    first = True
    with ThreadPoolExecutor(WORKERS) as pool:
        while after is not None:
            listed = page({"after": after})
            context = ssl.create_default_context(cadata=listed["authority"] or None)
            files = list(listed["files"])
            if first and files:
                _first(context, files.pop(0), target)
                first = False
            for folder in listed["folders"]:
                _place(target, folder).mkdir(parents=True, exist_ok=True)
            list(pool.map(_fetch, repeat(context), files, repeat(target)))
            after = listed["after"] or None


def _first(context: ssl.SSLContext, entry: Mapping[str, Any], target: Path) -> None:
    try:
        _fetch(context, entry, target, _FIRST_TIMEOUT)
    except (OSError, http.client.HTTPException) as error:
        _place(target, entry["path"]).unlink(missing_ok=True)
        for folder in sorted((path for path in target.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        raise Unreached(str(error) or type(error).__name__) from None


def _fetch(context: ssl.SSLContext, entry: Mapping[str, Any], target: Path, timeout: float = _TIMEOUT) -> None:
    """Download one file; after a lost connection, from where it broke off."""
    path = _place(target, entry["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, done = hashlib.sha256(), 0
    with path.open("wb") as file:
        for left in reversed(range(_TRIES)):
            try:
                for block in _blocks(context, entry, done, timeout):
                    file.write(block)
                    digest.update(block)
                    done += len(block)
                break
            except (OSError, http.client.HTTPException):
                if not left or not done:
                    raise
    if done != entry["size"] or (entry["sha256"] and digest.hexdigest() != entry["sha256"]):
        raise ClientError(f"{entry['path']} is damaged: its content in the store is not what was stored.")


def _blocks(context: ssl.SSLContext, entry: Mapping[str, Any], start: int, timeout: float) -> Any:
    parts = urlsplit(entry["url"])
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        headers = {**entry["headers"], **({"Range": f"bytes={start}-"} if start else {})}
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        if answer.status != (206 if start else 200):
            where = f"{parts.scheme}://{parts.netloc}{parts.path}"
            raise ClientError(f"{where} answers {answer.status} {answer.reason}; try again, or through the master.")
        while block := answer.read(_BLOCK):
            yield block
    finally:
        connection.close()


def _place(target: Path, name: str) -> Path:
    parts = name.rstrip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ClientError(f"The master sent {name!r}, which cannot be a file of a checkpoint.")
    return target.joinpath(*parts)
