"""What a large site costs the master: jobs that run at the same time, and searches of any length."""

from __future__ import annotations

from benchmarks import live_jobs, searches
from benchmarks.measure import Deadline


def run(deadline: Deadline) -> None:
    """The figures of live jobs, then those of searches."""
    live_jobs.run(deadline)
    searches.measure(deadline)
