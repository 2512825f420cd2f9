"""Atomic writing of small text files: a reader sees all of the content, or none of it."""

from __future__ import annotations

import os
from typing import Callable


def replace_file(path: str, content: str) -> None:
    """Write `path` in place of what is there. Raises OSError, and leaves nothing behind then."""
    _write(path, content, os.replace)


def create_file(path: str, content: str) -> bool:
    """Write `path` unless it exists; whether it was written. Raises OSError, and leaves nothing behind then."""
    try:
        _write(path, content, os.link)
    except FileExistsError:
        return False
    return True


def _write(path: str, content: str, put_in_place: Callable[[str, str], None]) -> None:
    draft = "%s.%d.new" % (path, os.getpid())
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(content)
        put_in_place(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
