"""What sentences on the end of a job have in common. Pure."""

from __future__ import annotations

import signal


def named_signal(number: int) -> str:
    """For example "signal 9 (SIGKILL)"; schedulers have numbers of their own that no signal has."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
