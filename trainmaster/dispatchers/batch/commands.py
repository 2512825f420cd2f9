"""Builds parts of argument vectors that all schedulers' commands share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CHUNK = 100  # job ids per command; a line of 100 ids is far below any limit


def chunks(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in chunks, one for each command."""
    return (job_ids[at : at + CHUNK] for at in range(0, len(job_ids), CHUNK))
