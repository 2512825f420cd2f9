"""Exit record: how one node of the job ended. Written to the job folder and sent to the master."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Optional

from trainmaster.runtime.files import create_file, replace_file
from trainmaster.runtime.record import Record


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
    evidence: str = ""  # the last output of the user's process before it failed
    failed_rank: Optional[int] = None  # which of its ranks failed first, where a launcher started ranks
    failed_at: Optional[float] = None
    fault: str = ""  # a cause outside of the user's code, for which the attempt is repeated

    def to_json(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = self.values()
        fields["version"] = 1
        fields["preempted"] = None if self.preempted is None else {"reason": self.preempted}
        return fields


def write_exit_record(folder: str, record: ExitRecord, *, replace: bool = True) -> None:
    """Write `exit/<node rank>.json` atomically. Raises OSError.

    With `replace=False` an existing record stays: a job that never got the lease must not speak for the one that has
    it.
    """
    target = _place(folder, record.node_rank)
    try:
        os.mkdir(os.path.dirname(target), 0o700)
    except FileExistsError:  # another node was first
        if not os.path.isdir(os.path.dirname(target)):
            raise
    (replace_file if replace else create_file)(target, json.dumps(record.to_json()))


def make_durable(folder: str, node_rank: int) -> None:
    """Flush the exit record of a node to disk. Raises OSError."""
    target = _place(folder, node_rank)
    for path in (target, os.path.dirname(target)):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _place(folder: str, node_rank: int) -> str:
    return os.path.join(folder, "exit", "%d.json" % node_rank)
