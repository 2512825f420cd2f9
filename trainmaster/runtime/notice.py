"""Messages of the runtime for the scheduler's capture of the job's output."""

from __future__ import annotations

import sys


def print_notice(text: str) -> None:
    """Print one line to stderr. Never raises: the scheduler's file may be on a full disk."""
    try:
        sys.stderr.write("trainmaster: %s\n" % text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return
