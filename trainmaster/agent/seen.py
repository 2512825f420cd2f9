"""Value type for a container as this host's Docker engine lists it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """A container of this agent, as the engine lists it. Times are epoch seconds."""

    id: str
    token: str
    job_id: str
    node_rank: int
    num_nodes: int
    slot_ids: tuple[int, ...]
    status: str  # created, running, paused, restarting, removing, exited, dead
    exit_code: int | None = None
    oom: bool = False
    error: str = ""
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("exited", "dead")
