"""Words for the end of a job that all schedulers share. Pure."""

from __future__ import annotations

import signal


def named_signal(number: int) -> str:
    """Return, for example, "signal 9 (SIGKILL)"; only the number for numbers that schedulers have added."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
