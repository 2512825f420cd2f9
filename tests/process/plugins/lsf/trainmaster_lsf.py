"""A dispatcher for a scheduler with LSF's commands, as a package of its own would bring it.

It shows that a batch scheduler needs nothing of trainmaster's code but the contract: options of its own in the
master's file, options of its own in experiments, and what its scheduler does not take is refused by itself.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from trainmaster.config.shapes import AbsolutePath, Line, Name, Positive
from trainmaster.containers import Bind, ContainerStart, UnknownRuntime, container_runtime
from trainmaster.dispatchers.base import (
    Ambiguous,
    Capabilities,
    ClusterFacts,
    DispatcherError,
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
    Unreachable,
    UserOptions,
)
from trainmaster.dispatchers.cluster.folder import JobFolder, check_token

LONGEST_PROJECT = 59  # characters, as LSF has it
FORBIDDEN = re.compile(r"[^A-Za-z0-9_.:,=\[\] -]")
STATES = {"PEND": JobState.QUEUED, "RUN": JobState.RUNNING, "DONE": JobState.COMPLETED, "EXIT": JobState.FAILED}
SIGNALS = {Signal.PREEMPT: "USR2", Signal.TERMINATE: "TERM"}
LINE = re.compile(r"\d+\|\w+\|(-|\d+)\|[\w-]+\|[\d.]+\|.*")
FORMAT = "jobid stat exit_code exit_reason submit_time job_name delimiter='|'"
# The folder `once` keeps a second job of the same token from running.
SCRIPT = """#!/bin/bash
cd {folder} && mkdir once 2>/dev/null || exit 0
export TRAINMASTER_JOB_ID=$LSB_JOBID TRAINMASTER_NODE_NAME=$(uname -n) TRAINMASTER_SLOT_IDS={slots}
exec bash start.sh
"""


class LsfOptions(DispatcherOptions):
    """The `resource_manager` section of an LSF cluster. Times are seconds."""

    shared_folder: ClassVar[bool] = True

    bin: AbsolutePath
    """The folder of LSF's commands."""
    envdir: AbsolutePath
    """The folder of lsf.conf: LSF_ENVDIR of the commands."""
    queues: dict[str, Positive] = Field(default_factory=lambda: {"normal": 4})
    """The slots of each queue; the first is the default."""
    project_source: Line = "project"
    poll_interval: float = Field(default=5.0, gt=0)
    deadline: float = Field(default=30.0, gt=0)
    """That a command may take."""

    def facts(self) -> ClusterFacts:
        return ClusterFacts(project_source=self.project_source)

    def pool_names(self) -> Sequence[str]:
        return list(self.queues)

    def pool_environment(self, pool: str) -> Mapping[str, str]:
        return {"LSF_QUEUE": pool} if pool else {}


class LsfUserOptions(UserOptions):
    """The section `lsf` of an experiment."""

    appended: ClassVar[frozenset[str]] = frozenset({"bsub_args"})

    bsub_args: list[Line] = Field(default_factory=list)
    """`-W MINUTES` and `-R REQUIREMENT`."""
    project: Name | None = None


@dataclass(frozen=True)
class Job:
    """A line of bjobs."""

    job_id: str
    state: JobState
    word: str
    code: int | None
    submitted_at: float
    name: str

    @classmethod
    def read(cls, line: str) -> Job | None:
        """None for a line that is not of bjobs."""
        if not LINE.fullmatch(line):
            return None
        job_id, word, code, why, submitted, name = line.split("|", 5)
        state = JobState.CANCELLED if why == "TERM_OWNER" else STATES.get(word, JobState.UNKNOWN)
        return cls(job_id, state, word, None if code == "-" else int(code), float(submitted), name)

    @property
    def text(self) -> str:
        if self.state is JobState.CANCELLED:
            return "The job was cancelled."
        return f"The job ended with status {self.code}." if self.state.terminal else ""


class LsfDispatcher:
    contract_version = 2
    kind = "lsf"
    traits = Traits(waiting="Waits in LSF: ")
    Options = LsfOptions
    UserOptions = LsfUserOptions

    def __init__(self, setup: Setup) -> None:
        self.name = setup.name
        self._prefix = setup.prefix
        self._root = setup.job_root
        try:
            self._options = LsfOptions.model_validate(dict(setup.options))
        except ValidationError as error:
            raise Rejected(f"The lsf resource manager's configuration is wrong: {error}.") from None

    def probe(self) -> Capabilities:
        self._run("bjobs", "-a", "-noheader", "-o", FORMAT)
        return Capabilities(
            scheduler="lsf", version="10.1", avoids_nodes=False, poll_interval=self._options.poll_interval
        )

    def pools(self) -> Sequence[Pool]:
        first = next(iter(self._options.queues))
        return [
            Pool(name, SlotType.CPU, slots, slots_per_node=slots, is_default=name == first)
            for name, slots in self._options.queues.items()
        ]

    def check(self, spec: JobSpec) -> Sequence[str]:
        found = []
        slots = self._options.queues.get(spec.pool)
        if slots is None:
            found.append(f"LSF has no queue {spec.pool!r}; there are {', '.join(self._options.queues)}.")
        elif spec.slots > slots:
            found.append(f"The job asks for {spec.slots} slots, and the queue {spec.pool} has {slots}.")
        try:
            found += container_runtime(spec.container.runtime).check(spec.container.image)
        except UnknownRuntime as error:
            found.append(str(error))
        try:
            _words(spec)
        except Rejected as error:
            found.append(str(error))
        return found

    def remarks(self, spec: JobSpec) -> Sequence[str]:
        if spec.labels and _asked(spec).project:
            return [f"lsf.project: LSF accounts the job to {_asked(spec).project}, not to {spec.labels[0]}."]
        return ()

    def submit(self, spec: JobSpec) -> JobRef:
        folder = JobFolder(self._root, check_token(spec.token, self._prefix))
        options = _words(spec)
        binds = [Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds]
        start = container_runtime(spec.container.runtime).start_script(
            ContainerStart(folder.path, spec.container.image, binds=binds)
        )
        folder.stage({**spec.files, "start.sh": StagedFile(start.encode())})
        script = SCRIPT.format(folder=shlex.quote(str(folder.path)), slots=shlex.quote(str(list(range(spec.slots)))))
        words = ["-J", spec.token, "-q", spec.pool, "-n", str(max(spec.slots, 1)), "-o", str(folder.output)]
        said = self._run(
            "bsub", *words, "-env", "none", "-cwd", str(folder.path), *options, script=script, token=spec.token
        )
        found = re.search(r"^Job <(\d+)> is submitted", said, re.MULTILINE)
        if found is None:
            raise Ambiguous(f"bsub answered {said!r:.200}.", token=spec.token)
        return JobRef(spec.token, found[1])

    def observe(self) -> Snapshot:
        taken = time.time()
        return Snapshot(
            taken,
            [
                Observation(
                    token=job.name,
                    job_id=job.job_id,
                    state=job.state,
                    raw_state=job.word,
                    explanation=job.text,
                    exit_code=job.code,
                    submitted_at=job.submitted_at,
                )
                for job in self._jobs()
                if job.name.startswith(self._prefix)
            ],
        )

    def cancel(self, refs: Sequence[JobRef]) -> None:
        if refs:
            self._run("bkill", *(ref.job_id for ref in refs))

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        if refs:
            self._run("bkill", "-s", SIGNALS[signal], *(ref.job_id for ref in refs))

    def explain(self, ref: JobRef) -> Explanation:
        for job in self._jobs():
            if (job.job_id, job.name) == (ref.job_id, ref.token):
                return Explanation(job.text or "The job runs.", job.state, job.word, job.code)
        return Explanation(f"LSF does not remember job {ref.job_id}.")

    def collect(
        self, token: str, user: str | None = None, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30
    ) -> Remains:
        return JobFolder(self._root, token).collect(places, most)

    def forget(self, token: str, user: str | None = None) -> None:
        JobFolder(self._root, token).forget()

    def log_path(self, token: str) -> Path | None:
        return JobFolder(self._root, token).output

    def close(self) -> None:
        """Nothing is held."""

    def _jobs(self) -> list[Job]:
        lines = self._run("bjobs", "-a", "-noheader", "-o", FORMAT).splitlines()
        return [job for job in map(Job.read, lines) if job is not None]

    def _run(self, command: str, *words: str, script: str = "", token: str = "") -> str:
        environment: dict[str, Any] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LSF_ENVDIR": self._options.envdir}
        try:
            done = subprocess.run(
                [f"{self._options.bin}/{command}", *words],
                input=script,
                env=environment,
                capture_output=True,
                text=True,
                timeout=self._options.deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _cut(f"{command} did not answer in time.", token) from None
        except OSError as error:
            raise Unreachable(f"{command} cannot be started: {error}.") from None
        if done.returncode and "No matching job found" not in done.stderr:
            raise _cut(f"{command} failed: {done.stderr.strip()}", token)
        return done.stdout


def _cut(text: str, token: str) -> DispatcherError:
    """A call without an answer: a submit (`token`) may have happened all the same."""
    return Ambiguous(text, token=token) if token else Unreachable(text)


def _asked(spec: JobSpec) -> LsfUserOptions:
    return LsfUserOptions.model_validate(dict(spec.options))


def _words(spec: JobSpec) -> list[str]:
    """The user's part of the bsub call. Raises Rejected."""
    asked = _asked(spec)
    words: list[str] = []
    for argument in asked.bsub_args:
        option, _, value = argument.partition(" ")
        if option not in ("-W", "-R") or not value:
            raise Rejected(f"lsf.bsub_args may hold -W MINUTES and -R REQUIREMENT, not {argument!r}.")
        words += [option, value]
    if project := asked.project or ",".join(spec.labels):
        words += ["-P", project]
        if len(project) > LONGEST_PROJECT:
            raise Rejected(f"LSF takes project names of {LONGEST_PROJECT} characters; {project!r} is longer.")
    if spec.slots_per_node:
        words += ["-R", f"span[ptile={spec.slots_per_node}]"]
    if bad := next((word for word in words if FORBIDDEN.search(word)), None):
        raise Rejected(f"LSF does not take {FORBIDDEN.search(bad)[0]!r} in {bad!r}.")  # type: ignore[index]
    return words
