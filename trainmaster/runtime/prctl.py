"""What the kernel is asked for about processes: prctl(2)."""

from __future__ import annotations

import os

try:
    import _ctypes  # of `ctypes`, one function: the rest costs every job 4 ms of CPU
except ImportError:  # a Python that was built without it
    _ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Optional
else:
    import _signal as signal  # the names that `signal` adds cost every job 3 ms of CPU

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _find() -> Optional[int]:
    """The function's address; None where there is none."""
    try:
        return _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: what this process has
    except (OSError, AttributeError):
        return None


# Found before any fork: a child of a process with threads must not wait for the loader's lock.
_address = _find()


def _prctl(option: int, argument: int) -> bool:
    return _address is not None and bool(_ctypes.call_function(_address, (option, argument, 0, 0, 0)) == 0)


def become_subreaper() -> bool:
    """Orphans of the user's process become our children instead of init's, so that none is lost from sight.
    False where the kernel or the C library does not offer it."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, its parent, ends. Lasts over exec.

    Does nothing where the kernel does not offer it; leaves at once when the parent has gone already.
    """
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
