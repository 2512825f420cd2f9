"""The smallest dispatcher that keeps the contract: every job is a process of its own on this machine, at once.

No queue and no limits; it is here to be read, beside `trainmaster/dispatchers/base.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from trainmaster.containers import Bind, ContainerStart, UnknownRuntime, container_runtime
from trainmaster.dispatchers.base import (
    Capabilities,
    DispatcherOptions,
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
    StagedFile,
    StreamPosition,
    Traits,
    UserOptions,
)
from trainmaster.dispatchers.cluster.folder import JobFolder
from trainmaster.templates import ControlCharacter

POOL = "nohup"
SIGNALS = {Signal.PREEMPT: signals.SIGUSR2, Signal.TERMINATE: signals.SIGTERM}
# start.sh hands signals on to the runtime; its status is kept whether or not anybody watches.
SCRIPT = "echo $$ > group; bash start.sh > output.txt 2>&1 & echo $! > pid; wait $!; echo $? > ended"


class NohupOptions(DispatcherOptions):
    """The `resource_manager` section: these keys and those of every dispatcher."""

    slots: int = Field(default=4, ge=1)


class NohupUserOptions(UserOptions):
    """What an experiment may say in its section `nohup`."""

    nice: int = Field(default=0, ge=0, le=19)


class NohupDispatcher:
    contract_version = 2
    kind = "nohup"
    traits = Traits()
    Options = NohupOptions
    UserOptions = NohupUserOptions

    def __init__(self, setup: Setup) -> None:
        self.name = setup.name
        self._prefix = setup.prefix
        self._root = setup.job_root
        self._slots = NohupOptions.model_validate(setup.options).slots

    def probe(self) -> Capabilities:
        return Capabilities(scheduler="nohup", version="1.0", poll_interval=0.5)

    def pools(self) -> Sequence[Pool]:
        running = sum(1 for job in self.observe().jobs if not job.state.terminal)
        used = min(running, self._slots)
        return [Pool(POOL, SlotType.CPU, self._slots, used, slots_per_node=self._slots, is_default=True)]

    def check(self, spec: JobSpec) -> Sequence[str]:
        found = []
        if spec.pool != POOL:
            found.append(f"There is no pool {spec.pool!r} here; there is {POOL}.")
        if spec.slots > self._slots:
            found.append(f"The job asks for {spec.slots} slots, and this machine offers {self._slots}.")
        try:
            found += container_runtime(spec.container.runtime).check(spec.container.image)
        except UnknownRuntime as error:
            found.append(str(error))
        return found

    def remarks(self, spec: JobSpec) -> Sequence[str]:
        nice = NohupUserOptions.model_validate(spec.options).nice
        return [f"The job runs with niceness {nice}, and others on this machine come before it."] if nice else []

    def submit(self, spec: JobSpec) -> JobRef:
        if not spec.token.startswith(self._prefix):
            raise Rejected(f"The token {spec.token!r} does not begin with {self._prefix!r}.", token=spec.token)
        folder = JobFolder(self._root, spec.token)
        binds = [Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds]
        try:
            runtime = container_runtime(spec.container.runtime)
            start = runtime.start_script(ContainerStart(folder.path, spec.container.image, binds))
        except (UnknownRuntime, ControlCharacter) as error:
            raise Rejected(str(error), token=spec.token) from None
        folder.stage({**spec.files, "start.sh": StagedFile(start.encode())})
        try:
            # The claim makes a second submit under the same token harmless.
            os.close(os.open(folder.path / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return JobRef(spec.token, spec.token)
        # Not the master's environment: what is not named here does not reach the job.
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ}
        environment |= {
            "TRAINMASTER_JOB_ID": spec.token,
            "TRAINMASTER_NODE_NAME": os.uname().nodename,
            "TRAINMASTER_SLOT_IDS": str(list(range(spec.slots))),
        }
        # A session of its own, and nobody's child: the job outlives the master.
        nice = NohupUserOptions.model_validate(spec.options).nice
        command = ["setsid", "--fork", "nice", "-n", str(nice), "bash", "-c", SCRIPT]
        subprocess.run(command, cwd=folder.path, env=environment, stdin=subprocess.DEVNULL, check=True)
        return JobRef(spec.token, spec.token)

    def observe(self) -> Snapshot:
        taken = time.time()
        folders = sorted(self._root.glob(f"{self._prefix}*"))
        return Snapshot(taken, [self._look(folder) for folder in folders if (folder / "claimed").exists()])

    def cancel(self, refs: Sequence[JobRef]) -> None:
        for ref in refs:
            folder = self._root / ref.token
            with contextlib.suppress(OSError, ValueError):  # it never was, or has ended
                (folder / "cancelled").touch()
                os.killpg(int((folder / "group").read_text()), signals.SIGKILL)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        for ref in refs:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self._root / ref.token / "pid").read_text()), SIGNALS[signal])

    def explain(self, ref: JobRef) -> Explanation:
        folder = self._root / ref.token
        if not (folder / "claimed").exists():
            return Explanation("Nothing is known of this job.")
        seen = self._look(folder)
        return Explanation(seen.explanation or "It runs.", seen.state, seen.raw_state, seen.exit_code)

    def collect(
        self,
        token: str,
        user: str | None = None,  # noqa: ARG002 one account runs all jobs
        places: Mapping[str, StreamPosition] | None = None,
        most: int = 2**30,
    ) -> Remains:
        return JobFolder(self._root, token).collect(places, most)

    def forget(self, token: str, user: str | None = None) -> None:  # noqa: ARG002 one account runs all jobs
        JobFolder(self._root, token).forget()

    def log_path(self, token: str) -> Path | None:
        return JobFolder(self._root, token).output

    def close(self) -> None:
        """Nothing is held."""

    def _look(self, folder: Path) -> Observation:
        state, words, code = self._state(folder)
        since = (folder / "claimed").stat().st_mtime
        return Observation(
            token=folder.name,
            job_id=folder.name,
            state=state,
            raw_state=state.value.lower(),
            explanation=words,
            exit_code=code,
            nodes=[os.uname().nodename],
            submitted_at=since,
            started_at=since,
        )

    def _state(self, folder: Path) -> tuple[JobState, str, int | None]:
        alive = self._alive(folder)  # first: what is asked later is at least as new
        if (folder / "cancelled").exists() and not alive:
            return JobState.CANCELLED, "The job was cancelled", None
        with contextlib.suppress(OSError, ValueError):
            code = int((folder / "ended").read_text())
            return JobState.FAILED if code else JobState.COMPLETED, f"The job ended with status {code}", code
        if alive:
            return JobState.RUNNING, "", None
        return JobState.INFRASTRUCTURE, "The process vanished", None

    def _alive(self, folder: Path) -> bool:
        try:
            group = int((folder / "group").read_text())
            state = Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return not (folder / "group").exists()  # submitted a moment ago
        except (OSError, ValueError):
            return False
        return state != "Z"
