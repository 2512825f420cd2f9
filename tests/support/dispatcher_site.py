"""Submits small jobs to a dispatcher and waits for their results."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.dispatchers.base import Dispatcher, JobRef, JobSpec, JobState, Observation, Setup, SlotType
from trainmaster.dispatchers.conformance import programs


@dataclass(frozen=True)
class Bench:
    """A dispatcher with its set-up, and the verbs that tests need."""

    dispatcher: Dispatcher
    setup: Setup
    pool: str = "main"
    slot_type: SlotType = SlotType.CUDA

    def spec(self, program: str = programs.ENDS_WELL, **changes: object) -> JobSpec:
        """`options`: what an experiment says in its section, or just the list of raw options in it."""
        token = f"{self.setup.prefix}{secrets.token_hex(6)}"
        if isinstance(raw := changes.get("options"), tuple) and self.dispatcher.UserOptions is not None:
            (key,) = self.dispatcher.UserOptions.appended
            changes["options"] = {key: list(raw)}
        spec = JobSpec(
            token=token,
            allocation_id=token,
            pool=self.pool,
            slots=1,
            slot_type=self.slot_type,
            files=programs.runtime(program),
        )
        return replace(spec, **changes)  # type: ignore[arg-type]

    def submit(self, program: str, **changes: object) -> JobRef:
        return self.dispatcher.submit(self.spec(program, **changes))

    def folder(self, ref: JobRef) -> Path:
        return self.setup.job_root / ref.token

    def seen(self, token: str) -> list[Observation]:
        return [job for job in self.dispatcher.observe().jobs if job.token == token]

    def state(self, ref: JobRef) -> JobState | None:
        return next((job.state for job in self.seen(ref.token)), None)

    def ended(self, ref: JobRef, seconds: float = 60.0) -> Observation:
        found: list[Observation] = []

        def over() -> bool:
            found[:] = self.seen(ref.token)
            return bool(found) and all(job.state.terminal for job in found)

        with self._told_by_the_scheduler(ref):
            wait(over, f"the end of {ref.token}", seconds)
        return found[0]

    def ready(self, ref: JobRef, files: int = 1) -> None:
        """Wait until the job's program (on `files` nodes) has reported that it runs."""
        with self._told_by_the_scheduler(ref):
            wait(lambda: len(list(self.folder(ref).glob("ready*"))) == files, f"the start of {ref.token}")

    @contextmanager
    def _told_by_the_scheduler(self, ref: JobRef) -> Iterator[None]:
        """A wait that was in vain says why the job waits, too: on a site's own cluster nobody else knows."""
        try:
            yield
        except AssertionError as error:
            seen = [f"{job.state} {job.explanation}" for job in self.seen(ref.token)]
            raise AssertionError(f"{error}; the scheduler says: {' '.join(seen) or 'nothing'}") from None

    def clean(self) -> None:
        """End and forget all jobs."""
        alive = [job for job in self.dispatcher.observe().jobs if not job.state.terminal]
        self.dispatcher.cancel([JobRef(job.token, job.job_id, job.cluster) for job in alive])
        wait(lambda: all(job.state.terminal for job in self.dispatcher.observe().jobs), "the end of all jobs")


def wait(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)
