"""What argument vectors of all schedulers' commands have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CHUNK = 100  # job ids a command; a line of 100 ids stays far below any limit


def chunks(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in as many parts as there must be commands."""
    return (job_ids[at : at + CHUNK] for at in range(0, len(job_ids), CHUNK))
