"""The exit records of the nodes of a job: the column `allocations.exits`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainmaster.master.values.stored import StoredJson


@dataclass(frozen=True)
class ExitRecord:
    """The runtime's record of how one node's part of the job ended."""

    node_rank: int
    exit_code: int
    signal: int | None = None
    oom: bool = False
    preempted: str | None = None  # reason of a preemption request, if there was one
    acked: bool = False
    began: bool = True  # the user's code was started
    message: str = ""
    node_name: str = ""
    evidence: str = ""  # evidence: the code's last output before it failed
    failed_rank: int | None = None  # the rank that failed first, where it started ranks
    failed_at: float | None = None  # time of that, by the node's clock
    fault: str = ""  # a cause outside of the user's code, as the runtime reports it
    job_id: str | None = None
    spool: Mapping[str, int] = field(default_factory=dict)  # lines of each stream that it has written
    received_at: float = 0.0  # epoch seconds

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], rank: int | None = None) -> ExitRecord:
        preempted = stored.get("preempted")
        return cls(
            node_rank=int(stored.get("node_rank") or 0) if rank is None else rank,
            exit_code=int(stored.get("exit_code") or 0),
            signal=stored.get("signal"),
            oom=bool(stored.get("oom")),
            preempted=str(preempted.get("reason")) if isinstance(preempted, Mapping) else None,
            acked=bool(stored.get("preempt_acked")),
            began=bool(stored.get("began", cls.began)),
            message=str(stored.get("message") or ""),
            node_name=str(stored.get("node_name") or ""),
            evidence=str(stored.get("evidence") or ""),
            failed_rank=stored.get("failed_rank"),
            failed_at=stored.get("failed_at"),
            fault=str(stored.get("fault") or ""),
            job_id=stored.get("job_id"),
            spool=stored.get("spool") or {},
            received_at=float(stored.get("received_at") or 0.0),
        )


class ExitRecords(StoredJson):
    """The exit records of a job's nodes, by their ranks. They are stored as the nodes reported them."""

    @cached_property
    def by_rank(self) -> Mapping[int, ExitRecord]:
        return {int(rank): ExitRecord.from_json(record, int(rank)) for rank, record in self._stored.items()}

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, rank: int) -> bool:
        return str(rank) in self._stored

    def __iter__(self) -> Iterator[ExitRecord]:
        return iter(self.by_rank.values())

    def added(self, rank: int, record: Mapping[str, Any], received_at: float) -> ExitRecords:
        """Return a copy with the record of one more node."""
        return ExitRecords({**self._stored, str(rank): {**record, "received_at": received_at}})
