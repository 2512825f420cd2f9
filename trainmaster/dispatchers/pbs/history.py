"""Caches ended jobs that PBS still lists, so that each is queried only once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.dispatchers.pbs.parse import PbsJob
from trainmaster.dispatchers.pbs.states import map_state


class RecentlyEnded:
    """Cache of jobs that ended lately; how a job ended does not change any more. Not thread-safe."""

    def __init__(self, ours: Callable[[PbsJob], bool]) -> None:
        self._ours = ours
        self._known: dict[str, PbsJob | None] = {}

    def unknown(self, listed: Iterable[str]) -> list[str]:
        """Return listed ids whose end is not known yet; forget jobs that are no longer listed."""
        ids = dict.fromkeys(listed)
        self._known = {job_id: job for job_id, job in self._known.items() if job_id in ids}
        return [job_id for job_id in ids if job_id not in self._known or not _settled(self._known[job_id])]

    def learn(self, asked: Sequence[str], jobs: Iterable[PbsJob]) -> None:
        """Store the answers for the ids in `asked`; of other users' jobs only that they exist. An id without an answer
        is queried again."""
        found = {job.job_id: job for job in jobs}
        for job_id in asked:
            if (job := found.get(job_id)) is not None:
                self._known[job_id] = job if self._ours(job) else None

    @property
    def jobs(self) -> list[PbsJob]:
        """Ours."""
        return [job for job in self._known.values() if job is not None]


def _settled(job: PbsJob | None) -> bool:
    """Whether the state is final. An unknown state may be an error in the output; a job that was moved to another
    server (M) stays so."""
    return job is None or job.state == "M" or map_state(job).terminal
