"""Waits for conditions with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll until `condition` is true and return what it said; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process is over, waited for by its parent or not."""
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
