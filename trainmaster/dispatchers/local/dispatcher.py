"""Dispatcher for this machine: implements the dispatcher contract on job folders and one queue."""

from __future__ import annotations

import platform
import signal as signals
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from trainmaster.containers import SHARED_FILES, Bind, CannotStart, ContainerStart, Device, UnknownRuntime
from trainmaster.dispatchers.base import (
    Capabilities,
    DispatcherOptions,
    Explanation,
    JobRef,
    JobSpec,
    JobState,
    Observation,
    Pool,
    PoolNode,
    Rejected,
    Remains,
    Setup,
    Signal,
    SlotType,
    Snapshot,
    StagedFile,
    StreamPosition,
    Traits,
    Transient,
    UserOptions,
)
from trainmaster.dispatchers.cluster.folder import JobFolder, check_token, with_cause
from trainmaster.dispatchers.local.local_job import LocalJob
from trainmaster.dispatchers.local.local_queue import LocalQueue
from trainmaster.dispatchers.local.options import LocalOptions
from trainmaster.templates import ControlCharacter

_SIGNALS = {Signal.PREEMPT: signals.SIGUSR2, Signal.TERMINATE: signals.SIGTERM}


class LocalDispatcher:
    """Runs jobs as processes of this machine, under the account of the master."""

    contract_version: ClassVar[int] = 2
    kind: ClassVar[str] = "local"
    traits: ClassVar[Traits] = Traits(
        user_section="slurm", section_keys=frozenset()
    )  # whose options are refused by name
    Options: ClassVar[type[DispatcherOptions]] = LocalOptions
    UserOptions: ClassVar[type[UserOptions] | None] = None

    def __init__(self, setup: Setup) -> None:
        """Read the options. Raises Rejected for a wrong configuration."""
        self.name = setup.name
        self._prefix = setup.prefix
        self._root = setup.job_root
        self._options = LocalOptions.read(setup.options)
        self._queue = LocalQueue(setup.job_root, self._options)
        # Jobs of an earlier master wait in the folder; they must start without another submit.
        self._queue.wake()

    def probe(self) -> Capabilities:
        return Capabilities(
            scheduler="local",
            version=platform.release(),
            accounting=True,  # a job's folder records how it ended, as long as it exists
            avoids_nodes=False,
            quiet_period=0.0,
            poll_interval=self._options.poll_interval,
        )

    def pools(self) -> Sequence[Pool]:
        used = {slot for job in self._queue.jobs() if not job.status().state.terminal for slot in job.slot_ids or ()}
        return [
            Pool(
                name=self._options.pool_name,
                slot_type=self._options.slot_type,
                slots_total=self._options.slots,
                slots_used=len(used),
                nodes=1,
                slots_per_node=self._options.slots,
                description=f"This machine, {platform.node()}",
                is_default=True,
                members=(PoolNode(platform.node() or "localhost", self._options.slots, len(used)),),
            )
        ]

    def check(self, spec: JobSpec) -> Sequence[str]:
        complaints = []
        if spec.pool != self._options.pool_name:
            complaints.append(f"There is no pool {spec.pool!r} here; there is {self._options.pool_name}.")
        if spec.slots > self._options.slots:
            complaints.append(f"The job asks for {spec.slots} slots, and this machine has {self._options.slots}.")
        if spec.user is not None:
            complaints.append("Jobs on this machine run under the account of the master; no other user can be named.")
        if spec.options.get("sbatch_args"):
            complaints.append("There is no batch scheduler here, so scheduler options (sbatch_args) have no effect.")
        try:
            runtime = self._options.container(spec.container.runtime)
            complaints += runtime.check(runtime.resolve(spec.container.image, None))
        except UnknownRuntime as error:
            complaints.append(str(error))
        return complaints

    def remarks(self, spec: JobSpec) -> Sequence[str]:  # noqa: ARG002 every job runs as asked
        return ()

    def submit(self, spec: JobSpec) -> JobRef:
        folder = JobFolder(self._root, check_token(spec.token, self._prefix))
        job = LocalJob(folder.path)
        known = job.submitted
        if known is not None:
            return JobRef(spec.token, known.job_id)
        if spec.slots > self._options.slots:
            raise Rejected(
                f"The job asks for {spec.slots} slots, and this machine has {self._options.slots}.", token=spec.token
            )
        try:
            runtime = self._options.container(spec.container.runtime)
            start = runtime.start_script(
                ContainerStart(
                    job_folder=folder.path,
                    image=runtime.resolve(spec.container.image, None, fresh=spec.container.force_pull),
                    fresh=spec.container.force_pull,
                    binds=[Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds],
                    gpus=self._options.slot_type is SlotType.CUDA and spec.slots > 0,
                    rocm=self._options.slot_type is SlotType.ROCM and spec.slots > 0,
                    shared=folder.shared_folders(spec.files),
                    python=self._options.python,
                    scratch=self._options.scratch,
                    shm_size=spec.container.shm_size,
                    devices=[Device(each.host_path, each.container_path, each.mode) for each in spec.container.devices],
                )
            )
        except (CannotStart, UnknownRuntime, ControlCharacter) as error:
            raise Rejected(str(error), token=spec.token) from None
        shares = SHARED_FILES in runtime.supports
        (folder.stage_sharing if shares else folder.stage)({**spec.files, "start.sh": StagedFile(start.encode())})
        try:
            ref = JobRef(spec.token, job.submit(spec.slots).job_id)
        except OSError as error:  # a full disk: the job appears in one step or not at all
            raise Transient(f"{folder.path} cannot be written: {error.strerror}.", token=spec.token) from None
        self._queue.wake()
        return ref

    def observe(self) -> Snapshot:
        taken_at = time.time()
        ours = (job for job in self._queue.jobs() if job.token.startswith(self._prefix))
        return Snapshot(taken_at=taken_at, jobs=tuple(filter(None, map(self._observation, ours))))

    def _observation(self, job: LocalJob) -> Observation | None:
        status = job.status()
        files = job.files()  # after the state: a job that is being removed is left out
        submitted = files.submitted
        if submitted is None:
            return None
        waits = status.state is JobState.QUEUED
        return Observation(
            token=job.token,
            job_id=submitted.job_id,
            state=status.state,
            raw_state=status.raw,
            explanation=status.text,
            exit_code=status.exit_code,
            exit_signal=status.exit_signal,
            nodes=() if waits else (platform.node(),),
            started_at=files.started_at,
            submitted_at=submitted.submitted_at,
            never=waits and submitted.slots > self._options.slots,
        )

    def cancel(self, refs: Sequence[JobRef]) -> None:
        if jobs := self._known(refs):
            self._queue.cancel(jobs)
        self._queue.wake()

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        for job in self._known(refs):
            process = job.process
            if process is not None and job.ended is None:
                process.send(_SIGNALS[signal])

    def _known(self, refs: Sequence[JobRef]) -> list[LocalJob]:
        jobs = [LocalJob(JobFolder(self._root, ref.token).path) for ref in refs]
        return [job for job in jobs if job.submitted is not None]

    def explain(self, ref: JobRef) -> Explanation:
        job = LocalJob(JobFolder(self._root, ref.token).path)
        if job.submitted is None:
            return Explanation("There is no such job on this machine.")
        status = job.status()
        text = status.text or "The job runs on this machine."
        return Explanation(text, status.state, status.raw, status.exit_code, status.exit_signal)

    def collect(
        self,
        token: str,
        user: str | None = None,  # noqa: ARG002 one account runs all jobs
        places: Mapping[str, StreamPosition] | None = None,
        most: int = 2**30,
    ) -> Remains:
        remains = JobFolder(self._root, token).collect(places, most)
        return with_cause(remains, self._options.container(self._options.container_run_type))

    def forget(self, token: str, user: str | None = None) -> None:  # noqa: ARG002 one account runs all jobs
        folder = JobFolder(self._root, token)
        job = LocalJob(folder.path)
        if job.submitted is not None and not job.status().state.terminal:
            raise Transient(f"The job {token} has not ended; cancel it before its folder is removed.", token=token)
        job.withdraw()
        folder.forget()

    def log_path(self, token: str) -> Path | None:
        return JobFolder(self._root, token).output

    def close(self) -> None:
        self._queue.close()
