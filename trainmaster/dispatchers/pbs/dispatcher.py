"""Dispatcher for PBS: implements the dispatcher contract on the pure modules of this package and one client."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from trainmaster.config.user_options import Pbs
from trainmaster.dispatchers.base import (
    Canceller,
    Capabilities,
    DispatcherError,
    DispatcherOptions,
    Explanation,
    ExternalJob,
    JobRef,
    JobSpec,
    JobState,
    Observation,
    Pool,
    Problem,
    Setup,
    Signal,
    Snapshot,
    Traits,
    UserOptions,
    sentence,
)
from trainmaster.dispatchers.batch.dispatcher import SIGNALS, WAITING, BatchDispatcher
from trainmaster.dispatchers.batch.pools import KnownPools
from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.cluster.access.access import JobFolderAccess, make_access
from trainmaster.dispatchers.pbs import commands, options, resources
from trainmaster.dispatchers.pbs.client import PbsClient
from trainmaster.dispatchers.pbs.messages import explain_reason
from trainmaster.dispatchers.pbs.options import HostStart, PbsOptions
from trainmaster.dispatchers.pbs.outcomes import PbsExit, RecentlyEnded, canceller, describe_end, map_state, preempted
from trainmaster.dispatchers.pbs.parse import PbsJob, PrintedRecord, truth
from trainmaster.dispatchers.pbs.pools import Queue, queues, routed
from trainmaster.templates import render

# PBS answers a submit when it has accepted it, or never: a lost call is settled once the server answers others again.
_QUIET_PERIOD = 20.0
_NOT_IN_PROJECTS = re.compile(r"[/\[\]\"';:|<>+,?*]")  # qsub(1B), -P
_VERSION = re.compile(r"pbs_version = (\S+)")


class PbsDispatcher(BatchDispatcher):
    """Runs jobs on a PBS cluster, locally or over SSH, as the master's account or as each job's user."""

    contract_version: ClassVar[int] = 2
    kind: ClassVar[str] = "pbs"
    traits: ClassVar[Traits] = Traits(scheduler_type="PBS", fitting_policy="PBS", waiting=WAITING)
    Options: ClassVar[type[DispatcherOptions]] = PbsOptions
    UserOptions: ClassVar[type[UserOptions] | None] = Pbs
    _options: PbsOptions

    def __init__(self, setup: Setup) -> None:
        """Read the options. Raises Rejected for a wrong configuration."""
        options = PbsOptions.read(setup.options)
        environment, path = options.client_environment, options.command_path
        access = make_access(options, setup.job_root, environment=environment, path=path)
        super().__init__(setup, options, access)
        self._client = PbsClient(options, access)
        self._queues = KnownPools(self._ask_queues, options.pools_cached_for)
        self._ended = RecentlyEnded(self._is_ours)

    # -- the cluster -----------------------------------------------------------------------------------

    def probe(self) -> Capabilities:
        printed = self._client.version()
        match = _VERSION.search(printed)
        if match is None:
            return Capabilities(scheduler="pbs", version="none", problems=(_look_alike(printed),))
        server = self._client.server()
        history = server is not None and truth(server.get("job_history_enable"))
        return Capabilities(
            scheduler="pbs",
            version=match[1],
            accounting=history,
            impersonation=self._access.impersonates,
            avoids_nodes=False,  # `select` can name the hosts to take, not those to leave out
            quiet_period=_QUIET_PERIOD,
            poll_interval=self._options.poll_interval,
            problems=(*self._problems(history), *self._private(server), *self._access.problems()),
        )

    def _problems(self, history: bool) -> list[Problem]:
        problems = self._account_problems()
        if not history:
            problems.append(
                Problem(
                    "PBS forgets jobs at once when they end (job_history_enable is off).",
                    'Switch it on: qmgr -c "set server job_history_enable=True". Until then only the job itself can '
                    "report how it ended.",
                )
            )
        return problems + self._container_problems()

    def _private(self, server: PrintedRecord | None) -> list[Problem]:
        if server is None or truth(server.get("query_other_jobs") or "True"):
            return []
        return self._hidden_jobs("query_other_jobs is off", 'qmgr -c "set server operators += {account}@*"')

    def pools(self) -> Sequence[Pool]:
        """Return the queues that people submit to; those that only a routing queue feeds are part of it."""
        by_name = self._queues.all(fresh=True)
        inner = routed(by_name)
        return [queue.pool(self._options) for name, queue in by_name.items() if name not in inner]

    def _ask_queues(self, _before: Mapping[str, Queue]) -> dict[str, Queue]:
        """List the queues. Raises Unreachable, Transient."""
        client = self._client
        return queues(client.queues(), client.nodes(), client.server(), self._options)

    # -- a job before it exists ------------------------------------------------------------------------

    def check(self, spec: JobSpec) -> Sequence[str]:
        complaints: list[str] = []
        given = options.CheckedOptions()
        try:
            given = options.check(_asked(spec), self._options.gpu_resource)
        except BadOption as error:
            complaints.append(sentence(error))
        complaints += self._complaints(spec)
        try:
            known = self._queues.all()
        except DispatcherError:
            return complaints  # the cluster does not answer, so its queues are not known
        queue = known.get(spec.pool)
        if queue is None:
            complaints.append(f"PBS has no queue {spec.pool!r} with nodes; there are {', '.join(known) or 'none'}.")
        else:
            request = self._request(spec, queue)
            complaints += queue.complaints(spec, request, given.walltime, self._options)
            limit = given.shortest_walltime or given.walltime or queue.default_walltime
            complaints += self._too_short(spec, limit, queue.max_walltime, "-l walltime=0:{minutes}:00")
            complaints += _count_complaints(given, request)
        return complaints

    def _request(self, spec: JobSpec, queue: Queue | None) -> resources.ChunkRequest:
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
        folder = self._admit(spec)
        with self._refused_in_words(spec):
            job, scripts = self._prepare(spec, folder)
            scripts["start.sh"] = self._start_script(spec, folder)
        self._stage(spec, folder, scripts)
        return JobRef(spec.token, self._client.submit(job, spec.user), user=spec.user)

    def _prepare(self, spec: JobSpec, folder: JobFolderAccess) -> tuple[commands.QsubRequest, dict[str, str]]:
        """Return the qsub call and the scripts of a job."""
        given = options.check(_asked(spec), self._options.gpu_resource)
        queue = self._queues.find(spec.pool)
        request = self._request(spec, queue)
        wrong = _count_complaints(given, request)
        if wrong:
            raise BadOption(wrong[0])
        setting = self._options
        job = commands.QsubRequest(
            token=spec.token,
            queue=spec.pool,
            select=resources.select(request, setting.gpu_resource, given.per_node),
            place=":".join([setting.place.value, *given.place]),
            command=(setting.bash, str(folder.path / "job.sh")),
            resources=given.resources,
            user_options=given.options,
            project=_NOT_IN_PROJECTS.sub("_", "_".join(spec.labels)) or None,
        )
        common = {
            "job_folder": folder.path,
            "bash": setting.bash,
            "path": setting.job_path,
            "pbs_bin": setting.pbs_bin,
            "variables": sorted(setting.environment.items()),
        }
        chosen = given.shortest_walltime
        limit = chosen or given.walltime or (queue.default_walltime if queue else None)
        ways = [way.value for way in HostStart if way is not HostStart.AUTO]
        scripts = {
            "job.sh": render(
                "pbs_job.sh.j2",
                **common,
                walltime=limit or 0,
                limit_is_chosen=bool(chosen) or not limit,
                host_start=ways if setting.host_start is HostStart.AUTO else [setting.host_start.value],
            ),
            "host.sh": render("pbs_host.sh.j2", **common, slots_each=-(-spec.slots // request.chunks)),
        }
        return job, scripts

    # -- jobs that exist -------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """List all jobs by three queries: live jobs, ids of those that ended lately, and details of ended ones that are
        not known yet. A job that ends in between is in the second answer."""
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

    def _external(self, live: Sequence[PbsJob]) -> tuple[ExternalJob, ...]:
        """Return other users' jobs that wait or run, in the pools that they were submitted to."""
        cpus = self._queues.of_cpus()
        pools = routed(self._queues.cached())
        return tuple(
            ExternalJob(
                job_id=job.job_id,
                pool=pools.get(job.queue, job.queue),
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

    def _is_ours(self, job: PbsJob) -> bool:
        return self._is_token(job.name) and not job.is_array

    def cancel(self, refs: Sequence[JobRef]) -> None:
        if refs:
            self._client.cancel(refs)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        if refs:
            self._client.signal(refs, SIGNALS[signal])

    def explain(self, ref: JobRef) -> Explanation:
        job = self._client.one(ref.job_id)
        # Job ids start again when a server loses its database.
        if job is None or job.name != ref.token:
            return Explanation(f"PBS does not remember job {ref.job_id}.")
        state = map_state(job)
        exit = PbsExit.of(job.exit_status)
        return Explanation(
            text=describe_end(state, job) or f"PBS reports {job.state}.",
            state=state,
            raw_state=job.state,
            exit_code=exit.code if state.terminal else None,
            exit_signal=exit.signal if state.terminal else None,
            canceller=canceller(job) if state is JobState.CANCELLED else Canceller.UNKNOWN,
            script_began=self._began(job, ref) if state is JobState.CANCELLED else None,
        )

    def _began(self, job: PbsJob, ref: JobRef) -> bool | None:
        """Return whether the script of a cancelled job began; None when it was given no nodes."""
        return self.collect(ref.token, ref.user).output_tail is not None if job.nodes else None


def _observation(job: PbsJob, user: str | None) -> Observation:
    state = map_state(job)
    waiting = state in (JobState.QUEUED, JobState.HELD)
    exit = PbsExit.of(job.exit_status) if state.terminal else PbsExit()
    reason = explain_reason(job.comment) if state is JobState.QUEUED else None
    return Observation(
        token=job.name,
        job_id=job.job_id,
        state=state,
        raw_state=job.state,
        reason=reason.word if reason else "held" if waiting else "",
        explanation=describe_end(state, job),
        exit_code=exit.code,
        exit_signal=exit.signal,
        nodes=() if waiting else job.nodes,  # PBS still shows the nodes of a failed start
        started_at=None if waiting else job.started_at,
        expected_start=job.expected_start if state is JobState.QUEUED else None,
        ends_at=None if waiting else job.ends_at,
        # PBS records who deletes a job before it signals it.
        taken_back_at=job.changed_at if preempted(job) and not state.terminal else None,
        restarts=job.restarts,
        submitted_at=job.submitted_at,
        never=reason is not None and reason.never,
        user=user,
        canceller=canceller(job) if state is JobState.CANCELLED else Canceller.UNKNOWN,
    )


def _asked(spec: JobSpec) -> list[str]:
    """Return the user's options for PBS."""
    return Pbs.model_validate(dict(spec.options)).pbsbatch_args


def _count_complaints(given: options.CheckedOptions, request: resources.ChunkRequest) -> list[str]:
    if given.chunks in (None, request.chunks):
        return []
    return [
        f"PBS option -l select asks for {given.chunks} nodes, and resources.slots_per_trial for {request.chunks}; "
        "leave the number out of select."
    ]


def _look_alike(printed: str) -> Problem:
    first = next((line.strip() for line in printed.splitlines() if line.strip()), "nothing")
    return Problem(
        f"qsub here is not PBS's; `qsub --version` prints {first[:120]!r}. Slurm's package slurm-wlm-torque brings "
        "programs of the same names that only translate for Slurm, and Torque is another scheduler.",
        "Use resource_manager.type: slurm, or name PBS's own programs in resource_manager.commands.",
        fatal=True,
    )
