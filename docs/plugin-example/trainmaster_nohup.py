"""The smallest dispatcher that keeps the contract: every job is a process of its own on this machine, at once.

No queue and no limits; it is here to be read, beside `trainmaster/dispatchers/base.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from trainmaster.containers.base import Bind, Start
from trainmaster.containers.registry import container_runtime
from trainmaster.dispatchers.base import (
    Capabilities,
    Explanation,
    JobRef,
    JobSpec,
    JobState,
    Observation,
    Pool,
    Rejected,
    Remains,
    Setup,
    Signal,
    SlotType,
    Snapshot,
)

SIGNALS = {Signal.PREEMPT: signal.SIGUSR2, Signal.TERMINATE: signal.SIGTERM}


class NohupDispatcher:
    kind = "nohup"

    def __init__(self, setup: Setup) -> None:
        self.name = setup.name
        self._prefix = setup.prefix
        self._root = setup.job_root
        self._slots = int(setup.options.get("slots", 4))
        if self._slots < 1:
            raise Rejected(f"resource_manager.slots must be at least 1, but is {self._slots}.")

    def probe(self) -> Capabilities:
        return Capabilities(scheduler="nohup", version="1.0", poll_interval=0.5)

    def pools(self) -> Sequence[Pool]:
        used = sum(1 for job in self.observe().jobs if not job.state.terminal)
        return [Pool("nohup", SlotType.CPU, self._slots, used, slots_per_node=self._slots, is_default=True)]

    def check(self, spec: JobSpec) -> Sequence[str]:
        complaints = list(container_runtime(spec.container.runtime).check(spec.container.image))
        if spec.slots > self._slots:
            complaints.append(f"The trial wants {spec.slots} slots; this machine offers {self._slots}.")
        return complaints

    def submit(self, spec: JobSpec) -> JobRef:
        if complaints := self.check(spec):
            raise Rejected(" ".join(complaints), token=spec.token)
        folder = self._stage(spec)
        try:
            # The claim makes a second submit under the same token harmless.
            os.close(os.open(folder / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return JobRef(spec.token, spec.token)
        environment = {
            **os.environ,
            "TRAINMASTER_JOB_ID": spec.token,
            "TRAINMASTER_NODE_NAME": os.uname().nodename,
            "TRAINMASTER_SLOT_IDS": str(list(range(spec.slots))),
        }
        script = "bash start.sh > output.txt 2>&1; echo $? > ended"
        child = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, start_new_session=True)
        (folder / "pid").write_text(str(child.pid))
        return JobRef(spec.token, spec.token)

    def observe(self) -> Snapshot:
        taken = time.time()
        folders = sorted(self._root.glob(f"{self._prefix}*"))
        return Snapshot(taken, [self._look(folder) for folder in folders if (folder / "claimed").exists()])

    def cancel(self, refs: Sequence[JobRef]) -> None:
        for ref in refs:
            self._send(ref, signal.SIGKILL)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        for ref in refs:
            self._send(ref, SIGNALS[signal])

    def explain(self, ref: JobRef) -> Explanation:
        folder = self._root / ref.token
        if not folder.exists():
            return Explanation("Nothing is known of this job any more.")
        seen = self._look(folder)
        return Explanation(seen.explanation, seen.state, seen.raw_state, seen.exit_code)

    def collect(self, token: str) -> Remains:
        folder = self._root / token
        output = folder / "output.txt"
        return Remains(
            exits={int(path.stem): path.read_bytes() for path in (folder / "exit").glob("*.json")},
            streams={path.stem: path.read_bytes() for path in (folder / "spool").glob("*.jsonl")},
            output_tail=output.read_text(errors="replace")[-4000:] if output.exists() else "",
        )

    def forget(self, token: str) -> None:
        subprocess.run(["rm", "-rf", "--", str(self._root / token)], check=False)

    def log_path(self, token: str) -> Path | None:
        return self._root / token / "output.txt"

    def close(self) -> None:
        pass

    def _stage(self, spec: JobSpec) -> Path:
        folder = self._root / spec.token
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, file in spec.files.items():
            path = folder / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)
        binds = [Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds]
        runtime = container_runtime(spec.container.runtime)
        (folder / "start.sh").write_text(runtime.start_script(Start(folder, spec.container.image, binds)))
        return folder

    def _look(self, folder: Path) -> Observation:
        started = (folder / "claimed").stat().st_mtime
        try:
            code = int((folder / "ended").read_text())
        except (FileNotFoundError, ValueError):
            if self._alive(folder):
                return Observation(folder.name, folder.name, JobState.RUNNING, "running", started_at=started)
            return Observation(
                folder.name, folder.name, JobState.INFRASTRUCTURE, "gone", explanation="The process vanished"
            )
        state = JobState.FAILED if code else JobState.COMPLETED
        words = f"The job ended with status {code}"
        return Observation(
            folder.name, folder.name, state, "ended", explanation=words, exit_code=code, started_at=started
        )

    def _alive(self, folder: Path) -> bool:
        try:
            pid = int((folder / "pid").read_text())
            return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return False

    def _send(self, ref: JobRef, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or never started
            os.killpg(int((self._root / ref.token / "pid").read_text()), number)
