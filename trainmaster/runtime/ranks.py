"""Finds which rank (worker) of this node failed first: launchers write how each ended to the run folder.

A launcher's own status is not enough: torchrun ends with 1 however a worker failed.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Optional

from trainmaster.runtime.files import replace_file
from trainmaster.runtime.record import Record

RANKS = "ranks"  # folder below the run folder
_LONGEST_FILE = 4096  # bytes
_MAX_RANK = 1_000_000


class RankEnd(Record):
    """How one rank ended. `status` is a shell's: 128 + signal for a killed rank."""

    rank: int
    status: int
    at: float  # epoch seconds


def leave_rank_end(run_dir: str, end: RankEnd) -> None:
    """Write how a rank ended. Raises OSError."""
    folder = os.path.join(run_dir, RANKS)
    os.makedirs(folder, exist_ok=True)
    replace_file(os.path.join(folder, "%d.json" % end.rank), json.dumps(end.values()))


def first_failure(run_dir: Optional[str]) -> Optional[RankEnd]:
    """Find the rank that failed first; None when none did, or nothing is known.

    Ranks that died of SIGTERM come last: that is what a launcher does to the others.
    """
    if not run_dir:
        return None
    folder = os.path.join(run_dir, RANKS)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return None
    ends = [end for end in (_read(os.path.join(folder, name)) for name in names) if end is not None and end.status]
    return min(ends, key=lambda end: (end.status == 128 + signal.SIGTERM, end.at)) if ends else None


def _read(path: str) -> Optional[RankEnd]:
    """Read a rank's file; None when no launcher wrote it, since the folder is the user's."""
    try:
        with open(path, encoding="ascii") as file:
            raw: Any = json.loads(file.read(_LONGEST_FILE))
        end = RankEnd(int(raw["rank"]), int(raw["status"]), float(raw["at"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return end if 0 <= end.rank < _MAX_RANK and 0 <= end.status < 256 and 0 <= end.at < 1e11 else None


def signal_name(number: int) -> str:
    """Name of a signal, `SIGTERM` for 15; empty for a number that no signal has."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
