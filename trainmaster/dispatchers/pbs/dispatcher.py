"""The dispatcher for PBS: the contract's verbs, on the pure modules of this folder and one client."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from trainmaster.containers import Bind, Start, UnknownRuntime, resolve_image
from trainmaster.dispatchers.access.ways import Folder, make_access
from trainmaster.dispatchers.base import (
    Capabilities,
    DispatcherError,
    Explanation,
    ExternalJob,
    JobRef,
    JobSpec,
    JobState,
    Observation,
    Pool,
    Problem,
    Rejected,
    Remains,
    Setup,
    Signal,
    SlotType,
    Snapshot,
    StagedFile,
)
from trainmaster.dispatchers.folder import TOKEN
from trainmaster.dispatchers.pbs import commands, options, resources
from trainmaster.dispatchers.pbs.client import PbsClient
from trainmaster.dispatchers.pbs.config import HostStart, PbsOptions
from trainmaster.dispatchers.pbs.endings import in_words
from trainmaster.dispatchers.pbs.formats import Record
from trainmaster.dispatchers.pbs.history import RecentlyEnded
from trainmaster.dispatchers.pbs.parse import Job, truth
from trainmaster.dispatchers.pbs.queues import Queue, queues
from trainmaster.dispatchers.pbs.reasons import explain_reason
from trainmaster.dispatchers.pbs.states import Exit, map_state, preempted
from trainmaster.templates import ControlCharacter, render

log = logging.getLogger(__name__)

_SIGNALS = {Signal.PREEMPT: "USR2", Signal.TERMINATE: "TERM"}
# PBS answers a submit when it has taken it, or never: a cut call is settled as soon as the server serves others again.
_QUIET_PERIOD = 20.0
_VERSION = re.compile(r"pbs_version = (\S+)")


class PbsDispatcher:
    """Jobs on a PBS cluster, on this machine or behind SSH, as the master's account or as each job's user."""

    kind = "pbs"

    def __init__(self, setup: Setup) -> None:
        """Raises Rejected for a wrong configuration."""
        self.name = setup.name
        self._prefix = setup.prefix
        self._options = PbsOptions.read(setup.options)
        environment, path = self._options.client_environment, self._options.command_path
        self._access = make_access(self._options, setup.job_root, environment=environment, path=path)
        self._client = PbsClient(self._options, self._access)
        self._ended = RecentlyEnded(self._is_ours)
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._queues_at: float | None = None

    # -- the cluster -----------------------------------------------------------------------------------

    def probe(self) -> Capabilities:
        said = self._client.version()
        found = _VERSION.search(said)
        if found is None:
            return Capabilities(scheduler="pbs", version="none", problems=(_look_alike(said),))
        server = self._client.server()
        history = server is not None and truth(server.get("job_history_enable"))
        return Capabilities(
            scheduler="pbs",
            version=found[1],
            accounting=history,
            impersonation=self._access.impersonates,
            quiet_period=_QUIET_PERIOD,
            poll_interval=self._options.poll_interval,
            problems=(*self._problems(history), *self._private(server), *self._access.problems()),
        )

    def _problems(self, history: bool) -> list[Problem]:
        found = []
        if self._access.account == "root":
            found.append(
                Problem("The master runs as root, so jobs would run as root.", "Run it under an ordinary account.")
            )
        if not history:
            found.append(
                Problem(
                    "PBS forgets jobs at once when they end (job_history_enable is off).",
                    'Switch it on: qmgr -c "set server job_history_enable=True". Until then only the job itself can '
                    "tell how it ended.",
                )
            )
        return found + self._container_problems()

    def _container_problems(self) -> list[Problem]:
        name = self._options.container_run_type
        program = self._options.container_command or name
        path = f"{os.environ.get('PATH', '')}:{self._options.job_path}"
        if name == "none" or not self._access.here or shutil.which(program, path=path) is not None:
            return []
        text = f"The container runtime {program} is not found on this machine."
        return [Problem(text, "Install it, or name its full path in container_command.")]

    def _private(self, server: Record | None) -> list[Problem]:
        """A site may hide jobs from everybody but their owners; ours would then look as if they were gone."""
        if server is None or not self._access.impersonates or truth(server.get("query_other_jobs") or "True"):
            return []
        who = self._access.account
        text = f"PBS hides other users' jobs (query_other_jobs is off), and {who} must see those that it starts."
        return [Problem(text, f'qmgr -c "set server operators += {who}@*"', fatal=True)]

    def pools(self) -> Sequence[Pool]:
        return [queue.pool(self._options) for queue in self._known_queues(fresh=True).values()]

    def _known_queues(self, *, fresh: bool = False) -> dict[str, Queue]:
        """Queues, asked for again when the last answer is old. Raises Unreachable, Transient."""
        with self._lock:
            age = None if self._queues_at is None else time.monotonic() - self._queues_at
            if age is not None and not (fresh and age > self._options.pools_cached_for):
                return self._queues
        # Asked without the lock: a server that hangs must not hold up those who are content with old answers.
        client = self._client
        found = queues(client.queues(), client.nodes(), client.server(), self._options)
        with self._lock:
            self._queues = found
            self._queues_at = time.monotonic()
        return found

    # -- a job before it exists ------------------------------------------------------------------------

    def check(self, spec: JobSpec) -> Sequence[str]:
        found: list[str] = []
        given = options.Given()
        try:
            given = options.check(spec.options, self._options.gpu_resource)
        except options.BadOption as error:
            found.append(_sentence(error))
        found += filter(None, [self._access.objection(spec.user)])
        try:
            runtime, image = self._options.container(spec.container.runtime), self._image(spec)
            if self._access.is_own(spec.user) or not image:
                found += runtime.check(image)  # else it may lie where only the user, or only the cluster, can see it
        except UnknownRuntime as error:
            found.append(str(error))
        try:
            known = self._known_queues()
        except DispatcherError:
            return found  # the cluster is away; nothing can be said about its queues
        queue = known.get(spec.pool)
        if queue is None:
            found.append(f"PBS has no execution queue {spec.pool!r}; there are {', '.join(known) or 'none'}.")
        else:
            request = self._request(spec, queue)
            found += queue.complaints(spec, request, given.walltime, self._options)
            found += _count_complaints(given, request)
        return found

    def _image(self, spec: JobSpec) -> str:
        return resolve_image(spec.container.image, self._options.image_root)

    def _request(self, spec: JobSpec, queue: Queue | None) -> resources.Request:
        size = self._options.node_size(spec.pool) or (queue.node_size if queue else 0)
        return resources.plan(
            spec.slots,
            spec.slot_type,
            gres_supported=self._options.knows_gpus(spec.pool),
            slots_per_node=spec.slots_per_node,
            single_node=spec.single_node,
            node_size=size or None,
        )

    # -- submit ----------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec) -> JobRef:
        folder = self._access.folder(spec.token, spec.user)
        if not spec.token.startswith(self._prefix):
            raise Rejected(f"The token {spec.token!r} does not begin with {self._prefix!r}.", token=spec.token)
        if objection := self._access.objection(spec.user):
            raise Rejected(objection, token=spec.token)
        try:
            job, scripts = self._prepare(spec, folder)
        except (options.BadOption, ControlCharacter, UnknownRuntime) as error:
            raise Rejected(_sentence(error), token=spec.token) from None
        staged = {name: StagedFile(text.encode(), 0o600) for name, text in scripts.items()}
        folder.stage({**spec.files, **staged})
        return JobRef(spec.token, self._client.submit(job, spec.user), user=spec.user)

    def _prepare(self, spec: JobSpec, folder: Folder) -> tuple[commands.Submission, dict[str, str]]:
        """The qsub call and the scripts of a job."""
        given = options.check(spec.options, self._options.gpu_resource)
        try:
            queue = self._known_queues().get(spec.pool)
        except DispatcherError:
            queue = None  # qsub will say what it thinks of the queue
        request = self._request(spec, queue)
        if spec.exclude_nodes:
            # `select` can name the hosts to take, not those to leave out.
            log.info("%s: PBS cannot keep a job off %s", spec.token, ", ".join(spec.exclude_nodes))
        wrong = _count_complaints(given, request)
        if wrong:
            raise options.BadOption(wrong[0])
        setting = self._options
        job = commands.Submission(
            token=spec.token,
            queue=spec.pool,
            select=resources.select(request, setting.gpu_resource, given.per_node),
            place=":".join([setting.place.value, *given.place]),
            command=(setting.bash, str(folder.path / "job.sh")),
            resources=given.resources,
            user_options=given.options,
            project=spec.account_label,
        )
        common = {
            "job_folder": folder.path,
            "bash": setting.bash,
            "path": setting.job_path,
            "pbs_bin": setting.pbs_bin,
            "variables": sorted(setting.environment.items()),
        }
        limit = given.walltime or (queue.default_walltime if queue else None)
        ways = [way.value for way in HostStart if way is not HostStart.AUTO]
        scripts = {
            "job.sh": render(
                "pbs_job.sh.j2",
                **common,
                walltime=limit or 0,
                host_start=ways if setting.host_start is HostStart.AUTO else [setting.host_start.value],
            ),
            "host.sh": render("pbs_host.sh.j2", **common, slots_each=-(-spec.slots // request.chunks)),
            "start.sh": self._start_script(spec, folder),
        }
        return job, scripts

    def _start_script(self, spec: JobSpec, folder: Folder) -> str:
        libraries = self._options.gpu_libraries and spec.slots > 0
        return self._options.container(spec.container.runtime).start_script(
            Start(
                job_folder=folder.path,
                image=self._image(spec),
                binds=[Bind(bind.host_path, bind.container_path, bind.read_only) for bind in spec.container.binds],
                gpus=libraries and spec.slot_type is SlotType.CUDA,
                rocm=libraries and spec.slot_type is SlotType.ROCM,
                python=self._options.python,
                scratch=self._options.scratch,
            )
        )

    # -- jobs that exist -------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """One question for all jobs that live, one for the ids of those that ended lately, and one for what is not
        known yet of these. A job that ends in between is in the second answer."""
        taken_at = time.time()
        live = self._client.jobs()
        listed = self._client.ended_ids()
        if listed is not None:
            asked = self._ended.unknown(listed)
            self._ended.learn(asked, self._client.ended(asked) if asked else ())
        ended = {job.job_id: job for job in self._ended.jobs}
        ours = [job for job in live if self._is_ours(job) and job.job_id not in ended]
        return Snapshot(
            taken_at=taken_at,
            jobs=tuple(_observation(job, self._access.name(job.owner)) for job in (*ours, *ended.values())),
            external=self._external(live) if self._options.external_jobs else (),
        )

    def _external(self, live: Sequence[Job]) -> tuple[ExternalJob, ...]:
        """Jobs of others that wait or run."""
        with self._lock:
            cpus = {name for name, queue in self._queues.items() if queue.slot_type is SlotType.CPU}
        return tuple(
            ExternalJob(
                job_id=job.job_id,
                pool=job.queue,
                user=job.owner,
                state=map_state(job),
                name=job.name[:100],
                nodes=job.node_count,
                slots=job.cpus if job.queue in cpus else job.slots,
                submitted_at=job.submitted_at,
            )
            for job in live
            if not self._is_ours(job)
        )

    def _is_ours(self, job: Job) -> bool:
        return job.name.startswith(self._prefix) and bool(TOKEN.fullmatch(job.name)) and not job.is_array

    def cancel(self, refs: Sequence[JobRef]) -> None:
        if refs:
            self._client.cancel(refs)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        if refs:
            self._client.signal(refs, _SIGNALS[signal])

    def explain(self, ref: JobRef) -> Explanation:
        job = self._client.one(ref.job_id)
        # Numbers start again when a server loses its database.
        if job is None or job.name != ref.token:
            return Explanation(f"PBS does not remember job {ref.job_id}.")
        state = map_state(job)
        exit = Exit.of(job.exit_status)
        return Explanation(
            text=in_words(state, job) or f"PBS says {job.state}.",
            state=state,
            raw_state=job.state,
            exit_code=exit.code if state.terminal else None,
            exit_signal=exit.signal if state.terminal else None,
        )

    # -- the job folder --------------------------------------------------------------------------------

    def collect(self, token: str, user: str | None = None) -> Remains:
        return self._access.folder(token, user).collect()

    def forget(self, token: str, user: str | None = None) -> None:
        self._access.folder(token, user).forget()

    def announce(self, url: str) -> None:
        self._access.announce(url)

    def log_path(self, token: str) -> Path | None:
        return self._access.output(token)

    def close(self) -> None:
        """Let go of connections; jobs go on."""
        self._access.close()


def _observation(job: Job, user: str | None) -> Observation:
    state = map_state(job)
    waiting = state in (JobState.QUEUED, JobState.HELD)
    exit = Exit.of(job.exit_status) if state.terminal else Exit()
    reason = explain_reason(job.comment, state) if waiting else None
    return Observation(
        token=job.name,
        job_id=job.job_id,
        state=state,
        raw_state=job.state,
        reason=reason.word if reason else "",
        explanation=in_words(state, job),
        exit_code=exit.code,
        exit_signal=exit.signal,
        nodes=job.nodes,
        started_at=None if waiting else job.started_at,
        ends_at=None if waiting else job.ends_at,
        # PBS notes who deletes a job before it signals it.
        taken_back_at=job.changed_at if preempted(job) and not state.terminal else None,
        restarts=job.restarts,
        submitted_at=job.submitted_at,
        never=reason is not None and reason.never,
        user=user,
    )


def _count_complaints(given: options.Given, request: resources.Request) -> list[str]:
    if given.chunks in (None, request.chunks):
        return []
    return [
        f"PBS option -l select asks for {given.chunks} nodes, and resources.slots_per_trial for {request.chunks}; "
        "leave the number out of select."
    ]


def _look_alike(said: str) -> Problem:
    first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
    return Problem(
        f"qsub here is not PBS's; `qsub --version` says {first[:120]!r}. Slurm's package slurm-wlm-torque brings "
        "programs of the same names that only translate for Slurm, and Torque is another scheduler.",
        "Use resource_manager.type: slurm, or name PBS's own programs in resource_manager.commands.",
        fatal=True,
    )


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
