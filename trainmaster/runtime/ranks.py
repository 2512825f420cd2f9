"""Which of the ranks (workers) of this node failed first: launchers leave how each ended in the run folder.

A launcher's own status does not tell: torchrun ends with 1 whatever befell a worker.
"""

from __future__ import annotations

import os

from trainmaster.runtime.plain_json import dumps, loads
from trainmaster.runtime.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Optional
else:
    import _signal as signal  # the names that `signal` adds cost every job 3 ms of CPU

RANKS = "ranks"  # folder below the run folder
_LONGEST_FILE = 4096  # bytes
_MAX_RANK = 1_000_000


class RankEnd(Record):
    """How one rank ended. `status` is as a shell has it: 128 + signal for a killed one."""

    rank: int
    status: int
    at: float  # epoch seconds


def leave_rank_end(run_dir: str, end: RankEnd) -> None:
    """Raises OSError."""
    folder = os.path.join(run_dir, RANKS)
    os.makedirs(folder, exist_ok=True)
    draft = os.path.join(folder, "%d.new" % end.rank)
    with open(draft, "w", encoding="ascii") as file:
        file.write(dumps(end.values()))
    os.replace(draft, os.path.join(folder, "%d.json" % end.rank))


def first_failure(run_dir: Optional[str]) -> Optional[RankEnd]:
    """The rank that failed first, None when none did or nothing is known.

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
    """None for what no launcher wrote: the folder is the user's."""
    try:
        with open(path, encoding="ascii") as file:
            raw: Any = loads(file.read(_LONGEST_FILE))
        end = RankEnd(int(raw["rank"]), int(raw["status"]), float(raw["at"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return end if 0 <= end.rank < _MAX_RANK and 0 <= end.status < 256 and 0 <= end.at < 1e11 else None


def signal_name(number: int) -> str:
    """`SIGTERM` for 15; empty for a number that no signal has. Asks what is in memory already: where the image is
    served by a process of the job, a signal to all of its processes takes the image away as well, and no module can be
    read any more."""
    for name in dir(signal):
        if name.startswith("SIG") and name[3:4] != "_" and getattr(signal, name) == number:
            return name
    return ""
