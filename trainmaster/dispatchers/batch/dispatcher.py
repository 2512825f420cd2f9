"""Base class of dispatchers for batch schedulers: verbs that are the same for all, and building blocks for the
others."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from trainmaster.containers import (
    SHARED_FILES,
    Bind,
    CannotStart,
    ContainerRuntime,
    ContainerStart,
    Device,
    UnknownRuntime,
)
from trainmaster.dispatchers.base import (
    FolderFacts,
    HeldFiles,
    JobSpec,
    Problem,
    Rejected,
    Remains,
    Setup,
    Signal,
    SlotType,
    StagedFile,
    StreamPosition,
    sentence,
)
from trainmaster.dispatchers.batch.options import BatchOptions
from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.cluster.access.access import Access, JobFolderAccess
from trainmaster.dispatchers.cluster.folder import TOKEN, check_token, with_cause
from trainmaster.templates import ControlCharacter

SIGNALS = {Signal.PREEMPT: "USR2", Signal.TERMINATE: "TERM"}


_SHORTEST_TRAINING = 60  # seconds that a time limit must leave
# Determined's text for jobs of batch schedulers; users' scripts match it.
WAITING = "HPC job waiting to be scheduled: "


class BatchDispatcher:
    """Job folders, containers and accounts of a cluster with a batch scheduler. Calls no method of subclasses."""

    kind: ClassVar[str]

    def __init__(self, setup: Setup, options: BatchOptions, access: Access) -> None:
        self.name = setup.name
        self._prefix = setup.prefix
        self._options = options
        self._access = access

    # -- for `probe` -----------------------------------------------------------------------------------

    def _account_problems(self) -> list[Problem]:
        if self._access.account != "root":
            return []
        return [Problem("The master runs as root, so jobs would run as root.", "Run it under an ordinary account.")]

    def _container_problems(self) -> list[Problem]:
        name = self._options.container_run_type
        program = self._options.container_command or self._options.container(name).program
        path = f"{os.environ.get('PATH', '')}:{self._options.job_path}"
        if not program or not self._access.here or shutil.which(program, path=path) is not None:
            return []
        text = f"The container runtime {program} is not found on this machine."
        return [Problem(text, "Install it, or name its full path in container_command.")]

    def _hidden_jobs(self, setting: str, fix: str) -> list[Problem]:
        """Return a problem for a site that hides jobs from other users: our jobs would then seem to be gone."""
        if not self._access.impersonates:
            return []
        scheduler, who = self._options.scheduler, self._access.account
        text = f"{scheduler} hides other users' jobs ({setting}), and {who} must see those that it starts."
        return [Problem(text, fix.format(account=who), fatal=True)]

    # -- for `check` and `submit` ----------------------------------------------------------------------

    def _complaints(self, spec: JobSpec) -> list[str]:
        """Return why a job cannot run as its user or in its container, in any pool."""
        complaints = [*filter(None, [self._access.why_not(spec.user)])]
        try:
            runtime = self._options.container(spec.container.runtime)
            image = self._image(runtime, spec)
            if self._access.is_own(spec.user) or not image:
                complaints += runtime.check(image)  # otherwise only the user, or only the cluster, may see it
        except UnknownRuntime as error:
            complaints.append(str(error))
        return complaints

    def _too_short(self, spec: JobSpec, limit: int | None, longest: int | None, option: str) -> list[str]:
        """Refuse a time limit in seconds that ends a trial's attempt before it can train. `option`: how a limit is
        asked for, with {minutes}; `longest`: what the pool allows."""
        grace = spec.walltime_grace
        if not spec.trains or limit is None or limit > grace:
            return []
        minutes = -(-(grace + _SHORTEST_TRAINING) // 60)
        text = (
            f"The time limit of {limit} s leaves no time to train: trials are asked to save their work {grace} s "
            "before it (walltime_grace). "
        )
        if longest is not None and longest < minutes * 60:
            return [f"{text}Pool {spec.pool} allows {longest} s, which is too short for that."]
        return [f"{text}The smallest limit that works is {option.format(minutes=minutes)}."]

    def _admit(self, spec: JobSpec) -> JobFolderAccess:
        """Check a job before its submit, and return its folder. Raises Rejected."""
        check_token(spec.token, self._prefix)
        if objection := self._access.why_not(spec.user):
            raise Rejected(objection, token=spec.token)
        return self._access.folder(spec.token, spec.user)

    @contextlib.contextmanager
    def _refused_in_words(self, spec: JobSpec) -> Iterator[None]:
        """Turn errors in a job's options and container into Rejected, while it is prepared."""
        try:
            yield
        except (BadOption, CannotStart, ControlCharacter, UnknownRuntime) as error:
            raise Rejected(sentence(error), token=spec.token) from None

    def _start_script(self, spec: JobSpec, folder: JobFolderAccess) -> str:
        """Render start.sh, which starts one node's process. Raises CannotStart, UnknownRuntime, ControlCharacter."""
        libraries = self._options.gpu_libraries and spec.slots > 0
        runtime = self._options.container(spec.container.runtime)
        return runtime.start_script(
            ContainerStart(
                job_folder=folder.path,
                image=self._image(runtime, spec),
                fresh=spec.container.force_pull,
                binds=[Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds],
                gpus=libraries and spec.slot_type is SlotType.CUDA,
                rocm=libraries and spec.slot_type is SlotType.ROCM,
                shared=folder.shared_folders(spec.files),
                python=self._options.python,
                scratch=self._options.scratch,
                shm_size=spec.container.shm_size,
                devices=[Device(each.host_path, each.container_path, each.mode) for each in spec.container.devices],
            )
        )

    def _stage(self, spec: JobSpec, folder: JobFolderAccess, scripts: Mapping[str, str]) -> None:
        """Stage the files of a job and the scripts, by name. Raises Rejected, Transient, Unreachable."""
        files = {**spec.files, **{name: StagedFile(text.encode(), 0o600) for name, text in scripts.items()}}
        shares = SHARED_FILES in self._options.container(spec.container.runtime).supports
        (folder.stage_sharing if shares else folder.stage)(files)

    def _image(self, runtime: ContainerRuntime, spec: JobSpec) -> str:
        return runtime.resolve(spec.container.image, self._options.image_root, fresh=spec.container.force_pull)

    # -- for `observe` ---------------------------------------------------------------------------------

    def _is_token(self, name: str) -> bool:
        """Whether a job of this name is one of ours."""
        return name.startswith(self._prefix) and TOKEN.fullmatch(name) is not None

    # -- verbs -----------------------------------------------------------------------------------------

    def remarks(self, spec: JobSpec) -> Sequence[str]:
        """Report slots that are reserved beyond the request, because every node gets the same number."""
        each = spec.slots_per_node
        if not each or spec.slots % each == 0 or spec.single_node:
            return []
        if spec.slot_type is not SlotType.CPU and spec.slots < each:
            return []
        nodes = -(-spec.slots // each)
        asked = "1 slot is" if spec.slots == 1 else f"{spec.slots} slots are"
        return [
            f"{asked} not a multiple of {self.kind}.slots_per_node: the job takes {nodes} x {each}, "
            f"{nodes * each - spec.slots} more than it asks for."
        ]

    def collect(
        self,
        token: str,
        user: str | None = None,
        places: Mapping[str, StreamPosition] | None = None,
        most: int = 2**30,
    ) -> Remains:
        remains = self._access.folder(token, user).collect(places, most)
        return with_cause(remains, self._options.container(self._options.container_run_type))

    def forget(self, token: str, user: str | None = None) -> None:
        self._access.folder(token, user).forget()

    def files(self, user: str | None) -> HeldFiles | None:
        return self._access.files(user)

    def folders(self, paths: Sequence[str], user: str | None) -> Mapping[str, FolderFacts | None]:
        return self._access.folders(paths, user)

    def announce(self, url: str) -> int:
        return self._access.announce(url)

    def log_path(self, token: str) -> Path | None:
        return self._access.output(token)

    def close(self) -> None:
        """Close connections; jobs keep running."""
        self._access.close()
