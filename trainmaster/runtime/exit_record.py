"""How one node of the job ended, left in the job folder and told to the master."""

from __future__ import annotations

import json
import os
from pathlib import Path

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

    def to_json(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = self.values()
        fields["version"] = 1
        fields["preempted"] = None if self.preempted is None else {"reason": self.preempted}
        return fields


def write_exit_record(folder: Path, record: ExitRecord, *, replace: bool = True) -> None:
    """Write `exit/<node rank>.json` so that it is whole or not there. Raises OSError.

    With `replace=False` an existing record stays: a job that never got the lease must not speak for the one
    that has it.
    """
    target = folder / "exit" / ("%d.json" % record.node_rank)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = target.with_suffix(".%d.new" % os.getpid())
    try:
        with open(str(fresh), "w", encoding="utf-8") as file:
            json.dump(record.to_json(), file)
        if replace:
            os.replace(str(fresh), str(target))
        else:
            os.link(str(fresh), str(target))
    except FileExistsError:
        return
    finally:
        if fresh.exists():
            fresh.unlink()


def make_durable(folder: Path, node_rank: int) -> None:
    """Have the disk keep the exit record of a node. Raises OSError."""
    target = folder / "exit" / ("%d.json" % node_rank)
    for path in (target, target.parent):
        file = os.open(str(path), os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
