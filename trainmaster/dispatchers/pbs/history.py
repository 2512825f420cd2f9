"""Ended jobs that PBS still lists, asked for once each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.dispatchers.pbs.parse import PbsJob
from trainmaster.dispatchers.pbs.states import map_state


class RecentlyEnded:
    """Remembers what is known of the jobs that ended lately, so that each is asked about a single time: how a job ended
    does not change any more. Not for several threads at once."""

    def __init__(self, ours: Callable[[PbsJob], bool]) -> None:
        self._ours = ours
        self._known: dict[str, PbsJob | None] = {}

    def unknown(self, listed: Iterable[str]) -> list[str]:
        """Ids of which it is not known yet how they ended. What is listed no more is forgotten."""
        ids = dict.fromkeys(listed)
        self._known = {job_id: job for job_id, job in self._known.items() if job_id in ids}
        return [job_id for job_id in ids if job_id not in self._known or not _settled(self._known[job_id])]

    def learn(self, asked: Sequence[str], jobs: Iterable[PbsJob]) -> None:
        """What came back of those that were asked for; of others' jobs only that they are. One that is listed and of
        which nothing came back is asked for again."""
        found = {job.job_id: job for job in jobs}
        for job_id in asked:
            if (job := found.get(job_id)) is not None:
                self._known[job_id] = job if self._ours(job) else None

    @property
    def jobs(self) -> list[PbsJob]:
        """Ours."""
        return [job for job in self._known.values() if job is not None]


def _settled(job: PbsJob | None) -> bool:
    """Whether no later answer says anything else. A word that is not understood may be a slip; a job that was moved to
    another server (M) stays so."""
    return job is None or job.state == "M" or map_state(job).terminal
