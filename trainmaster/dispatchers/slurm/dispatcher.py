"""Dispatcher for Slurm: implements the dispatcher contract on the pure modules of this package and one client."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from trainmaster.config.user_options import Slurm
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
    Transient,
    UserOptions,
    sentence,
)
from trainmaster.dispatchers.batch.dispatcher import SIGNALS, WAITING, BatchDispatcher
from trainmaster.dispatchers.batch.pools import KnownPools
from trainmaster.dispatchers.batch.requests import BadOption
from trainmaster.dispatchers.cluster.access.access import JobFolderAccess, make_access
from trainmaster.dispatchers.cluster.command_runner import LOCALE
from trainmaster.dispatchers.slurm import commands, options, resources
from trainmaster.dispatchers.slurm.client import SlurmClient
from trainmaster.dispatchers.slurm.messages import explain_reason
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.outcomes import (
    BY_NOBODY,
    LAUNCH_FAILED,
    SlurmExit,
    canceller,
    describe_end,
    find_end,
    map_state,
    state_words,
)
from trainmaster.dispatchers.slurm.parse import LISTED, QueueLine, SlurmController, duration, expand_hosts
from trainmaster.dispatchers.slurm.pools import Partition, partitions
from trainmaster.templates import render

_TIME = "--time={minutes}"  # how a time limit is asked for
_LONGEST_GRACE = 65535  # seconds; sbatch(1) --signal
_BROKEN_RELEASES = ("22.05.5", "22.05.6", "22.05.7", "22.05.8")


class SlurmDispatcher(BatchDispatcher):
    """Runs jobs on a Slurm cluster, locally or over SSH, as the master's account or as each job's user."""

    contract_version: ClassVar[int] = 2
    kind: ClassVar[str] = "slurm"
    traits: ClassVar[Traits] = Traits(scheduler_type="SLURM", fitting_policy="SLURM", waiting=WAITING)
    Options: ClassVar[type[DispatcherOptions]] = SlurmOptions
    UserOptions: ClassVar[type[UserOptions] | None] = Slurm
    _options: SlurmOptions

    def __init__(self, setup: Setup) -> None:
        """Read the options. Raises Rejected for a wrong configuration."""
        options = SlurmOptions.read(setup.options)
        access = make_access(options, setup.job_root, environment=options.client_environment, path=options.job_path)
        super().__init__(setup, options, access)
        self._client = SlurmClient(options, access)
        self._partitions = KnownPools(self._ask_partitions, options.pools_cached_for)
        self._names: dict[str, str] = {}  # job names by job id in the last listing
        self._lived: frozenset[str] = frozenset()  # ids of our jobs that had not ended in the last listing
        self._cancelled: frozenset[str] = frozenset()  # ids of our cancelled jobs in the last listing
        self._cancelling: set[str] = set()  # ids of jobs that we cancelled, as long as they are listed
        self._controller: SlurmController | None = None  # as it was asked last

    # -- the cluster -----------------------------------------------------------------------------------

    def probe(self) -> Capabilities:
        version = self._client.version()
        config = self._client.configuration()
        accounting = config.get("AccountingStorageType", "") not in ("", "(null)", "accounting_storage/none")
        timeout = float(_seconds(config.get("MessageTimeout", "")) or 10)
        min_age = _seconds(config.get("MinJobAge", ""))
        return Capabilities(
            scheduler="slurm",
            version=version,
            accounting=accounting,
            impersonation=self._access.impersonates,
            quiet_period=2 * timeout,
            poll_interval=self._poll_interval(min_age),
            problems=(*self._problems(version, accounting, min_age), *self._private(config), *self._access.problems()),
        )

    def _poll_interval(self, min_age: int | None) -> float:
        """Return an interval that allows three queries before Slurm forgets an ended job; 0 means that it never
        forgets."""
        return min(self._options.poll_interval, max(1.0, min_age / 3)) if min_age else self._options.poll_interval

    def _problems(self, version: str, accounting: bool, min_age: int | None) -> list[Problem]:
        problems = self._account_problems()
        if not accounting and min_age is not None and 0 < min_age < 10:
            problems.append(
                Problem(
                    f"Slurm forgets ended jobs after {min_age} s (MinJobAge) and keeps no accounting.",
                    "Raise MinJobAge to 60 or more; until then only the job itself can report how it ended.",
                )
            )
        if version in _BROKEN_RELEASES and any(
            self._options.dialect(name) is resources.GpuDialect.TRES
            for name in ("", *self._options.partition_overrides)
        ):
            problems.append(
                Problem(
                    f"Slurm {version} refuses some GPU requests that can be satisfied (SchedMD bug 15857).",
                    "Set slurm.slots_per_node in experiments, or tres_supported: false.",
                )
            )
        return problems + self._container_problems()

    def _private(self, config: Mapping[str, str]) -> list[Problem]:
        if "jobs" not in config.get("PrivateData", "").split(","):
            return []
        return self._hidden_jobs("PrivateData=jobs", "sacctmgr modify user {account} set adminlevel=operator")

    def pools(self) -> Sequence[Pool]:
        return [partition.pool(self._options) for partition in self._partitions.all(fresh=True).values()]

    def _ask_partitions(self, before: Mapping[str, Partition]) -> dict[str, Partition]:
        """List the partitions. Raises Unreachable, Transient."""
        pools = partitions(self._client.nodes(), self._options)
        # A trial whose pool does not exist is refused for good, so two answers must agree.
        gone = before.keys() - pools.keys()
        if gone and (hidden := gone & partitions(self._client.nodes(backwards=True), self._options).keys()):
            raise Transient(f"sinfo's answers contradict each other: partition {min(hidden)} is in one of two.")
        return pools

    # -- a job before it exists ------------------------------------------------------------------------

    def check(self, spec: JobSpec) -> Sequence[str]:
        complaints: list[str] = []
        given: dict[str, str | None] = {}
        try:
            given = options.check(_asked(spec).sbatch_args)
        except BadOption as error:
            complaints.append(sentence(error))
        complaints += self._complaints(spec)
        try:
            known = self._partitions.all()
        except DispatcherError:
            # The cluster does not answer, so its partitions are not known.
            return complaints + self._too_short(spec, options.shortest_walltime(given, None), None, _TIME)
        partition = known.get(spec.pool)
        if partition is None:
            complaints.append(f"Slurm has no partition {spec.pool!r}; there are {', '.join(known) or 'none'}.")
        else:
            request = self._request(spec, partition)
            complaints += partition.complaints(spec, _asked(spec).gpu_type, request, options.walltime(given))
            limit = options.shortest_walltime(given, partition.default_walltime)
            complaints += self._too_short(spec, limit, partition.max_walltime, _TIME)
            try:
                resources.check_gpus(given, request, spec.slots, spec.slot_type)
            except BadOption as error:
                complaints.append(sentence(error))
        return complaints

    def _request(self, spec: JobSpec, partition: Partition | None) -> resources.NodeRequest:
        size = self._options.node_size(spec.pool) or (partition.node_size(_asked(spec).gpu_type) if partition else 0)
        return resources.plan(
            spec.slots,
            spec.slot_type,
            self._options.dialect(spec.pool),
            slots_per_node=spec.slots_per_node,
            single_node=spec.single_node,
            node_size=size or None,
        )

    # -- submit ----------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec) -> JobRef:
        folder = self._admit(spec)
        with self._refused_in_words(spec):
            given = options.check(_asked(spec).sbatch_args)
            job, script = self._prepare(spec, folder, given)
            start = self._start_script(spec, folder)
        self._stage(spec, folder, {"start.sh": start})
        job_id, cluster = self._client.submit(job, script, spec.user)
        return JobRef(spec.token, job_id, cluster, spec.user)

    def _prepare(
        self, spec: JobSpec, folder: JobFolderAccess, given: dict[str, str | None]
    ) -> tuple[commands.SbatchRequest, str]:
        """Return the sbatch call and the job script of a job."""
        partition = self._partitions.find(spec.pool)
        request = self._request(spec, partition)
        resources.check_gpus(given, request, spec.slots, spec.slot_type)
        dialect = self._options.dialect(spec.pool)
        words = resources.sbatch_words(request, spec.slot_type, dialect, _checked_gpu_type(spec))
        own = {key: value for key, value in given.items() if key not in ("gres", "exclude")}
        if "cpus-per-task" in own:
            words = [word for word in words if not word.startswith("--cpus-per-task=")]
        excluded = [*spec.exclude_nodes, *filter(None, [given.get("exclude")])]
        job = commands.SbatchRequest(
            token=spec.token,
            partition=spec.pool,
            folder=folder.path,
            multi_node=request.multi_node,
            grace=max(1, min(spec.walltime_grace, _LONGEST_GRACE)),
            resources=resources.merge_gres(words, given.get("gres")),
            user_options=own,
            wckey=",".join(spec.labels) or None,
            exclude=excluded,
        )
        limit = options.walltime(given, partition.default_walltime if partition else None)
        cores = given.get("cpus-per-task") or request.cores_each
        script = render(
            "slurm_job.sh.j2",
            job_folder=folder.path,
            bash=self._options.bash,
            walltime=limit or 0,
            multi_node=request.multi_node,
            cpus_per_task=int(cores or 0),
            locale=[name for name in LOCALE if name not in self._options.environment],
        )
        return job, script

    # -- jobs that exist -------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        taken_at = time.time()
        ours: list[Observation] = []
        others: list[QueueLine] = []
        for job in self._whole_queue():
            if self._is_token(job.name):
                ours.append(_observation(job, self._access.name(job.user) if job.user else None))
            else:
                others.append(job)
        external = tuple(self._external(others)) if self._options.external_jobs else ()
        return Snapshot(taken_at, tuple(ours), external, self._restarted(ours))

    def _restarted(self, ours: Sequence[Observation]) -> float | None:
        """Return when the controller was started last. It is asked only when jobs of ours have been cancelled since the
        last listing, and not by us: one that came back with an old state cancels jobs itself."""
        cancelled = frozenset(job.job_id for job in ours if job.state is JobState.CANCELLED)
        new, self._cancelled = cancelled - self._cancelled, cancelled
        self._cancelling &= {job.job_id for job in ours}
        if new - self._cancelling:
            with contextlib.suppress(DispatcherError):  # not known then
                self._controller = self._client.controller()
        return self._controller.started_at if self._controller else None

    def _whole_queue(self) -> list[QueueLine]:
        """List all jobs, and detect truncated answers.

        Slurm remembers ended jobs for longer than the polling interval, so that a live job of ours that is no longer
        listed suggests a truncated answer. The same query in the other order decides. Raises Unreachable, Transient.
        """
        jobs = self._client.queue()
        alive = [job for job in jobs if not _state(job).terminal]
        if missing := self._lived - {job.job_id for job in jobs}:
            again = {job.job_id for job in self._client.queue(oldest_first=True)}
            if hidden := (missing & again) | ({job.job_id for job in alive} - again):
                raise Transient(f"squeue's answers contradict each other: job {min(hidden)} is in one of two.")
        self._names = {job.job_id: job.name for job in jobs}
        self._lived = frozenset(job.job_id for job in alive if job.name.startswith(self._prefix))
        return jobs

    def _external(self, jobs: Sequence[QueueLine]) -> Iterator[ExternalJob]:
        """Yield other users' jobs that wait or run."""
        cpus = self._partitions.of_cpus()
        for job in jobs:
            state = _state(job)
            if not state.terminal:
                slots = job.cpus if job.partition in cpus else job.gpus
                submitted = job.submitted_at
                yield ExternalJob(
                    job.job_id, job.partition, job.user, state, job.name[:100], job.num_nodes, slots, submitted
                )

    def cancel(self, refs: Sequence[JobRef]) -> None:
        if ours := self._still_ours(refs):
            self._cancelling |= {ref.job_id for ref in ours}
            self._client.cancel(ours)

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        if ours := self._still_ours(refs):
            self._client.signal(ours, SIGNALS[signal])

    def _still_ours(self, refs: Sequence[JobRef]) -> list[JobRef]:
        """Drop jobs whose id belongs to another job now: job ids start again when a cluster loses its state."""
        return [ref for ref in refs if self._names.get(ref.job_id, ref.token) == ref.token]

    def explain(self, ref: JobRef) -> Explanation:
        """Explain from the controller while it remembers the job, then from accounting, which also knows who cancelled
        it. Only the job's output shows that a task of several ran out of memory, or that slurmd refused to start the
        job ("Killing non-startable batch job", "Could not launch job and not able to requeue it, cancelling job"): both
        sources report no more than status 1, or that the job was cancelled."""
        shown = self._client.show_job(ref.job_id)
        if shown.get("JobName") not in (None, ref.token):
            shown = {}  # job ids start again when a cluster loses its state
        facts = _Facts.of_controller(shown) if shown else None
        if facts is None:
            facts = self._from_accounting(ref)
            if facts is not None and not facts.state.terminal:
                # Accounting shows a job for ever as running whose end it missed ("runaway").
                return Explanation(f"Slurm's controller does not remember job {ref.job_id}; accounting shows no end.")
        elif facts.state.terminal:
            with contextlib.suppress(DispatcherError):  # accounting does not answer; the controller's answer is used
                facts = self._better(facts, self._from_accounting(ref))
        if facts is None:
            return Explanation(f"Slurm does not remember job {ref.job_id}, and keeps no accounting that would.")
        if facts.state not in (JobState.FAILED, JobState.CANCELLED):
            return facts.explanation()
        output = self.collect(ref.token, ref.user).output_tail if facts.nodes else ""
        if facts.state is JobState.FAILED and output is None:
            # slurmd makes the file before it starts the script
            return replace(facts, raw=LAUNCH_FAILED).explanation()
        explanation = replace(facts, output=output or "").explanation()
        if explanation.state is not JobState.CANCELLED:
            return explanation
        began = output is not None if facts.nodes else None
        return replace(explanation, canceller=self._canceller(facts.raw), script_began=began)

    def _better(self, shown: _Facts, recorded: _Facts | None) -> _Facts:
        """Return accounting's record where it has the end already; it gets ends a little later than the controller."""
        return recorded if recorded and recorded.state.terminal else shown

    def _canceller(self, raw: str) -> Canceller:
        """Return who cancelled a job. Raises Unreachable, Transient."""
        if canceller(raw, ()) is Canceller.UNKNOWN:
            return Canceller.UNKNOWN
        self._controller = self._controller or self._client.controller()
        return canceller(raw, self._controller.accounts)

    def _from_accounting(self, ref: JobRef) -> _Facts | None:
        row = self._client.account(ref)
        return _Facts.of_accounting(row) if row else None

    def close(self) -> None:
        """Close connections and end pyslurm's process; jobs keep running."""
        self._client.close()
        super().close()


@dataclass(frozen=True)
class _Facts:
    """Facts about one job, from the controller or from accounting."""

    raw: str
    reason: str
    exit: SlurmExit | None
    derived: SlurmExit | None
    nodes: tuple[str, ...]
    output: str = ""  # the end of what the job printed

    @property
    def state(self) -> JobState:
        reason, exit, derived, placed = self.reason, self.exit, self.derived, bool(self.nodes)
        word = (state_words(self.raw) or [""])[-1]
        if own := find_end(word, reason=reason, exit=exit, derived=derived, placed=placed, output=self.output):
            return own.state
        return map_state(self.raw, reason=reason, exit=exit, derived=derived, placed=placed)

    @classmethod
    def of_controller(cls, shown: Mapping[str, str]) -> _Facts:
        return cls(
            raw=shown.get("JobState", ""),
            reason=shown.get("Reason", ""),
            exit=SlurmExit.parse(shown.get("ExitCode", "")),
            derived=SlurmExit.parse(shown.get("DerivedExitCode", "")),
            nodes=expand_hosts(shown.get("NodeList", "")),
        )

    @classmethod
    def of_accounting(cls, row: Mapping[str, str]) -> _Facts:
        return cls(
            raw=BY_NOBODY if row["state"] == "CANCELLED" else row["state"],
            reason=row["reason"],
            exit=SlurmExit.parse(row["exit"]),
            derived=SlurmExit.parse(row["derived"]),
            nodes=expand_hosts(row["nodes"]),
        )

    def explanation(self) -> Explanation:
        text = describe_end(
            self.state,
            self.raw,
            reason=self.reason,
            exit=self.exit,
            derived=self.derived,
            nodes=self.nodes,
            output=self.output,
        )
        ended = self.state.terminal
        return Explanation(
            text=text or f"Slurm reports {self.raw}.",
            state=self.state,
            raw_state=self.raw,
            exit_code=self.exit.code if self.exit and ended and not self.exit.signal else None,
            exit_signal=self.exit.signal if self.exit and ended else None,
        )


@lru_cache(LISTED)
def _state(job: QueueLine) -> JobState:
    return map_state(job.state, reason=job.reason, exit=job.exit, derived=job.derived, placed=bool(job.nodes))


@lru_cache(LISTED)
def _observation(job: QueueLine, user: str | None) -> Observation:
    state = _state(job)
    begun = state not in (JobState.QUEUED, JobState.HELD)
    ended = state.terminal
    reason = explain_reason(job.reason)
    refused = state is JobState.FAILED and reason.never and not job.nodes
    return Observation(
        token=job.name,
        job_id=job.job_id,
        state=state,
        raw_state=job.state,
        cluster=job.cluster,
        reason=job.reason,
        explanation=describe_end(
            state, job.state, reason=job.reason, exit=job.exit, derived=job.derived, nodes=job.nodes
        ),
        exit_code=job.exit.code if ended and job.exit and not job.exit.signal else None,
        exit_signal=job.exit.signal if ended and job.exit else None,
        nodes=job.nodes,
        started_at=job.started_at if begun else None,
        # For a job that waits, Slurm prints an estimate in the same field: of those that its backfill has considered.
        expected_start=job.started_at if state is JobState.QUEUED else None,
        ends_at=job.ends_at if begun else None,
        taken_back_at=job.preempted_at if begun and _is_of_this_run(job) else None,
        restarts=job.restarts,
        submitted_at=job.submitted_at,
        never=refused or (not begun and reason.never),
        user=user,
    )


def _is_of_this_run(job: QueueLine) -> bool:
    """Whether the preemption time is of this run: a requeued job keeps the time of its last preemption."""
    return bool(job.preempted_at and job.started_at and job.preempted_at >= job.started_at)


def _asked(spec: JobSpec) -> Slurm:
    """Return the user's options for Slurm."""
    return Slurm.model_validate(dict(spec.options))


def _checked_gpu_type(spec: JobSpec) -> str | None:
    kind = _asked(spec).gpu_type
    if kind is not None and not re.fullmatch(resources.GPU_TYPE, kind):
        raise BadOption(
            f"slurm.gpu_type {kind!r} may not hold blanks, quotes, commas, colons, parentheses and the like"
        )
    return kind


def _seconds(text: str) -> int | None:
    """Return the number in "30 sec" of `scontrol show config`."""
    word = text.split(" ", 1)[0]
    return int(word) if word.isdigit() else duration(word)
