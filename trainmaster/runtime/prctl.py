"""Process attributes of Linux that Python has no function for: prctl(2)."""

from __future__ import annotations

import os
import signal
from typing import Any

try:
    import ctypes
except ImportError:  # a small image's Python was built without it
    ctypes = None  # type: ignore[assignment]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _find() -> Any:
    """Look up the C library's function; None where there is none."""
    try:
        return ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None


# Looked up before any fork: a child of a process with threads must not wait for the loader's lock.
_function = _find()


def _prctl(option: int, argument: int) -> bool:
    return _function is not None and bool(_function(option, argument, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Make orphans of the user's process children of this process instead of init's, so that they can be ended.
    False where the kernel or the C library does not support it."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, its parent, ends. Also holds after exec.

    Does nothing where the kernel does not offer it; leaves at once when the parent has gone already.
    """
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
