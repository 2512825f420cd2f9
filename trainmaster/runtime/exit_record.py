"""How one node of the job ended, left in the job folder and told to the master."""

from __future__ import annotations

import os

from trainmaster.runtime.plain_json import dumps
from trainmaster.runtime.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional


class ExitRecord(Record):
    """Fields as in ARCHITECTURE.md; times are seconds since the epoch."""

    allocation_id: str
    job_id: str
    node_rank: int
    node_name: str
    exit_code: int
    signal: Optional[int]
    oom: bool
    preempted: Optional[str]  # the reason
    preempt_acked: bool
    began: bool  # the user's process was started
    message: str
    started_at: float
    ended_at: float
    spool: Mapping[str, int]
    evidence: str = ""  # what the user's process said before it failed
    failed_rank: Optional[int] = None  # which of its ranks failed first, where a launcher started ranks
    failed_at: Optional[float] = None

    def to_json(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = self.values()
        fields["version"] = 1
        fields["preempted"] = None if self.preempted is None else {"reason": self.preempted}
        return fields


def write_exit_record(folder: str, record: ExitRecord, *, replace: bool = True) -> None:
    """Write `exit/<node rank>.json` so that it is whole or not there. Raises OSError.

    With `replace=False` an existing record stays: a job that never got the lease must not speak for the one
    that has it.
    """
    target = _place(folder, record.node_rank)
    fresh = "%s.%d.new" % (target, os.getpid())
    try:
        os.mkdir(os.path.dirname(target), 0o700)
    except FileExistsError:  # another node was first
        if not os.path.isdir(os.path.dirname(target)):
            raise
    try:
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(dumps(record.to_json()))
        if replace:
            os.replace(fresh, target)
        else:
            os.link(fresh, target)
    except FileExistsError:
        return
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)


def make_durable(folder: str, node_rank: int) -> None:
    """Have the disk keep the exit record of a node. Raises OSError."""
    target = _place(folder, node_rank)
    for path in (target, os.path.dirname(target)):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _place(folder: str, node_rank: int) -> str:
    return os.path.join(folder, "exit", "%d.json" % node_rank)
