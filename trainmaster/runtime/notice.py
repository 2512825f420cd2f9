"""What the runtime says where the scheduler captures it."""

from __future__ import annotations

import sys


def print_notice(text: str) -> None:
    """A line for the scheduler's capture of the job. Never raises: that file may be on the full disk."""
    try:
        sys.stderr.write("trainmaster: %s\n" % text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return
