"""A third-party dispatcher for tests: runs jobs on this machine, but loses jobs before they begin while its job root
has a file `broken`; a number in the file limits how many. It is found by its entry point, as an installed plugin."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.dispatchers.base import JobRef, JobSpec, JobState, Observation, Pool, Remains, Snapshot, StreamPosition
from trainmaster.dispatchers.local.dispatcher import LocalDispatcher

NODE = "n7"


class FlakyDispatcher(LocalDispatcher):
    contract_version = 2
    kind = "flaky"

    def _note(self, token: str) -> Path:
        return self._root / "lost" / token

    def submit(self, spec: JobSpec) -> JobRef:
        with (self._root / "asked.txt").open("a") as asked:
            asked.write(f"{spec.token} {','.join(spec.exclude_nodes)}\n")
        if not self._is_broken():
            return super().submit(replace(spec, exclude_nodes=()))
        self._note(spec.token).parent.mkdir(exist_ok=True)
        self._note(spec.token).touch()
        return JobRef(spec.token, f"lost-{spec.token}")

    def _is_broken(self) -> bool:
        broken = self._root / "broken"
        try:
            left = broken.read_text()
        except FileNotFoundError:
            return False
        if left == "1":
            broken.unlink()
        elif left:
            broken.write_text(str(int(left) - 1))
        return True

    def pools(self) -> Sequence[Pool]:
        """Of several nodes, so that one may be avoided."""
        return [replace(pool, nodes=8) for pool in super().pools()]

    def observe(self) -> Snapshot:
        seen = super().observe()
        lost = [
            Observation(
                token=note.name,
                job_id=f"lost-{note.name}",
                state=JobState.INFRASTRUCTURE,
                raw_state="NODE_FAIL",
                explanation=f"A node of the job failed on {NODE}.",
                nodes=(NODE,),
                submitted_at=time.time(),
            )
            for note in (self._root / "lost").glob("*")
        ]
        return Snapshot(seen.taken_at, (*seen.jobs, *lost))

    def collect(
        self, token: str, user: str | None = None, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30
    ) -> Remains:
        return Remains() if self._note(token).exists() else super().collect(token, user, places, most)

    def forget(self, token: str, user: str | None = None) -> None:
        if self._note(token).exists():
            self._note(token).unlink()
        else:
            super().forget(token, user)

    def cancel(self, refs: Sequence[JobRef]) -> None:
        super().cancel([ref for ref in refs if not self._note(ref.token).exists()])


def announce(folder: Path) -> dict[str, str]:
    """Install the plugin below `folder`; the environment in which it is found."""
    info = folder / "trainmaster_flaky-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trainmaster-flaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trainmaster.dispatchers]\nflaky = tests.support.flaky:FlakyDispatcher\n")
    root = Path(__file__).resolve().parents[2]
    return {"PYTHONPATH": f"{folder}:{root}"}
