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
_TERMINATED = 128 + signal.SIGTERM
# No launcher sends these at once, and no peer of a lost rank ends by them: SIGKILL and the signals of a crash.
_KILLED = frozenset(128 + n for n in (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))
_TOGETHER = 1.0  # seconds


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

    Ranks that died of SIGTERM come last: that is what a launcher does to the others. Of ranks that ended within a
    second, one that was killed comes before those that exited: they lost their connection to it, and on a busy node
    may be seen to end before it.
    """
    if not run_dir:
        return None
    folder = os.path.join(run_dir, RANKS)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return None
    ends = [end for end in (_read(os.path.join(folder, name)) for name in names) if end is not None and end.status]
    failed = [end for end in ends if end.status != _TERMINATED] or ends
    first = min((end.at for end in failed), default=0.0)
    killed = [end for end in failed if end.status in _KILLED and end.at - first < _TOGETHER]
    return min(killed or failed, key=lambda end: end.at, default=None)


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
