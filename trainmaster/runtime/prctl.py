"""What the kernel is asked for about processes: prctl(2)."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Optional
else:
    import _signal as signal  # the names that `signal` adds cost every job 3 ms of CPU

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _find() -> Optional[Any]:
    try:
        return ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None


# Found before any fork: a child of a process with threads must not wait for the loader's lock.
_prctl = _find()


def become_subreaper() -> bool:
    """Orphans of the user's process become our children instead of init's, so that none is lost from sight.
    False where the kernel or the C library does not offer it."""
    return _prctl is not None and bool(_prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, its parent, ends. Lasts over exec.

    Does nothing where the kernel does not offer it; leaves at once when the parent has gone already.
    """
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
