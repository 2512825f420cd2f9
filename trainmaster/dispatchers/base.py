"""The dispatcher contract: what turns a job description into something a scheduler runs.

This page is the plugin author's guide. A dispatcher is a class that implements `Dispatcher` and is announced
under the entry-point group ``trainmaster.dispatchers``; the administrator's configuration chooses it by that
short name. Several can run at once.

Rules that every dispatcher keeps:

* **The token is the job.** The master commits a row with a unique token before it calls `submit`; the token
  becomes the scheduler's job name (``[A-Za-z0-9_.-]``, at most 64 characters, starts with a letter). A second
  `submit` under the same token happens only after the master has looked for the first one.
* **Say what you know, not what you hope.** A submit that timed out is `Ambiguous`, never "failed". A job that is
  absent from a snapshot is only absent; the master decides what that means.
* **One question for all jobs.** `observe` is one bulk query, however many jobs there are.
* **Nothing is decided here.** No retries beyond one call, no states of trials, no policies.
* **Threads.** The master calls a dispatcher from worker threads, several at once; it calls `observe` from one
  thread at a time.
* **Errors.** Only the tree below leaves a dispatcher; anything else is a bug and is logged as one.

    DispatcherError
    |-- Rejected      the user's or the site's fault; final; the message is for the user
    |-- Transient     nothing happened; the same call may work later
    |-- Ambiguous     it may have happened; look for the token before trying again
    `-- Unreachable   the cluster cannot be asked; touch no state

Times are seconds since the epoch (UTC) unless a name says otherwise; sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

CONTRACT_VERSION = 1
ENTRY_POINT_GROUP = "trainmaster.dispatchers"


class DispatcherError(Exception):
    """Base of everything a dispatcher may raise. `token` is the job it is about, if it is about one."""

    def __init__(self, message: str, *, token: str | None = None) -> None:
        super().__init__(message)
        self.token = token


class Rejected(DispatcherError):
    """The scheduler or the dispatcher refuses the job for good; the message tells the user why and what to do."""


class Transient(DispatcherError):
    """Nothing happened, and the same call may work later (a limit, a busy controller that answered so)."""


class Ambiguous(DispatcherError):
    """The call may have had its effect (a time-out, a cut connection). Look for the token."""


class Unreachable(DispatcherError):
    """The cluster cannot be asked at all. No job's state may change because of it."""


def sentence(error: Exception) -> str:
    """What an error says, as a sentence: so it reaches people."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


class JobState(enum.StrEnum):
    """What a scheduler says of a job, mapped to words the master knows. Order of progress: see `rank`."""

    QUEUED = "QUEUED"  # waiting for resources
    HELD = "HELD"  # waiting for a person; not terminal
    STARTING = "STARTING"  # resources given, nodes being prepared
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    FINISHING = "FINISHING"  # the script has ended or is being ended; the outcome is not final
    COMPLETED = "COMPLETED"  # ended with status 0: believe the runtime's exit record before this
    FAILED = "FAILED"  # ended with another status
    CANCELLED = "CANCELLED"  # removed by a person or by us
    WALLTIME = "WALLTIME"  # the time limit or a deadline ended it
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"  # the scheduler took the resources for another job
    INFRASTRUCTURE = "INFRASTRUCTURE"  # node failure, boot failure, launch failure: not the user's fault
    UNKNOWN = "UNKNOWN"  # a word we do not know: the master keeps the last state

    @property
    def terminal(self) -> bool:
        """True when the scheduler will not change its mind about the job."""
        return self in _TERMINAL

    @property
    def rank(self) -> int:
        """Position in the partial order queued < starting < running < finishing < terminal; -1 for UNKNOWN."""
        return _RANK[self]


_TERMINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.WALLTIME,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
        JobState.INFRASTRUCTURE,
    }
)
_RANK = {
    JobState.UNKNOWN: -1,
    JobState.QUEUED: 0,
    JobState.HELD: 0,
    JobState.STARTING: 1,
    JobState.RUNNING: 2,
    JobState.SUSPENDED: 2,
    JobState.FINISHING: 3,
    **{state: 4 for state in _TERMINAL},
}


class SlotType(enum.StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


class Signal(enum.StrEnum):
    """What `Dispatcher.signal` can deliver to the runtime in a job."""

    PREEMPT = "preempt"  # checkpoint and leave (SIGUSR2)
    TERMINATE = "terminate"  # leave now (SIGTERM)


@dataclass(frozen=True)
class JobRef:
    """A job as its scheduler knows it."""

    token: str
    job_id: str  # the scheduler's own id, as printed
    cluster: str = ""  # for federations; ids are unique only within one
    user: str | None = None  # account the job runs as; None is the account the master runs under


@dataclass(frozen=True)
class ContainerSpec:
    """How the user's process is wrapped. `runtime` is a name of `trainmaster.containers`."""

    runtime: str = "none"  # apptainer, docker, ..., none
    image: str = ""
    binds: Sequence[BindMount] = ()
    shm_size: int | None = None  # bytes of /dev/shm, where the runtime can set it
    network_mode: str = ""  # Docker's word; empty: as the dispatcher's configuration has it
    force_pull: bool = False  # fetch the image again even where it is there
    devices: Sequence[DeviceMount] = ()
    add_capabilities: Sequence[str] = ()  # names as in capabilities(7), with or without CAP_
    drop_capabilities: Sequence[str] = ()
    root_capabilities: Sequence[str] = ()  # what the job needs where it is root; nothing for an ordinary account


@dataclass(frozen=True)
class BindMount:
    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True)
class DeviceMount:
    """A device of the host in the container; `mode` is of r, w and m (mknod)."""

    host_path: str
    container_path: str
    mode: str = "rwm"


@dataclass(frozen=True)
class StagedFile:
    """A file that must stand in the job folder, owned by the job's user, before the job can start."""

    content: bytes
    mode: int = 0o600


@dataclass(frozen=True)
class JobSpec:
    """Everything a dispatcher needs to run one allocation. Values are data; none of them is ever shell."""

    token: str
    allocation_id: str
    pool: str
    slots: int  # 0 for a job without accelerators or CPU shares of its own
    slot_type: SlotType
    slots_per_node: int | None = None  # the user's `slurm.slots_per_node` / `pbs.slots_per_node`
    gpu_type: str | None = None
    single_node: bool = False  # all slots on one node or nothing
    container: ContainerSpec = field(default_factory=ContainerSpec)
    files: Mapping[str, StagedFile] = field(default_factory=dict)  # path below the job folder -> file
    user: str | None = None  # account to run as; None is the account the master runs under
    options: Sequence[str] = ()  # raw `sbatch_args` / `pbsbatch_args`; the dispatcher checks each against its list
    account_label: str | None = None  # Slurm --wckey, PBS -P
    exclude_nodes: Sequence[str] = ()  # where the scheduler can (`Capabilities.avoids_nodes`)
    walltime_grace: int = 120  # seconds before a time limit at which the runtime is warned
    # Only for dispatchers that schedule themselves (`Capabilities.schedules`); a site's scheduler has its own mind.
    priority: int = 42  # 1 is served first, 99 last
    group: str = ""  # jobs that share one fair share (an experiment)
    weight: float = 1.0  # of the group's share
    max_slots: int | None = None  # that the group may hold at once
    preemptible: bool = True


@dataclass(frozen=True)
class Observation:
    """What was seen of one job: the raw words and what we make of them, never a bare enum."""

    token: str
    job_id: str
    state: JobState
    raw_state: str
    cluster: str = ""
    reason: str = ""  # the scheduler's reason word
    explanation: str = ""  # the same in a sentence for the user
    exit_code: int | None = None
    exit_signal: int | None = None
    nodes: Sequence[str] = ()
    started_at: float | None = None
    ends_at: float | None = None  # when the time limit strikes
    taken_back_at: float | None = None  # when the scheduler began to take the resources for another job: little is left
    restarts: int = 0  # how often the scheduler put it back into its queue after it had begun
    submitted_at: float | None = None
    never: bool = False  # True when the scheduler can never start it as asked (impossible request)
    user: str | None = None  # whose job it is; None where the dispatcher runs everything under one account


@dataclass(frozen=True)
class ExternalJob:
    """A job in a pool that is not ours: shown in the queue, so that people see what theirs wait behind."""

    job_id: str
    pool: str
    user: str
    state: JobState
    name: str = ""
    nodes: int = 0
    slots: int = 0
    submitted_at: float | None = None


@dataclass(frozen=True)
class Snapshot:
    """All jobs that carry our prefix, seen by one bulk query. `jobs` may list a token more than once (ghosts).
    `external` are live jobs of others that the same query showed; empty where it does not."""

    taken_at: float
    jobs: Sequence[Observation]
    external: Sequence[ExternalJob] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a job waits, or how it ended, in words for its owner."""

    text: str
    state: JobState = JobState.UNKNOWN
    raw_state: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None


@dataclass(frozen=True)
class PoolNode:
    """A node of a pool, as people see it. `enabled`: whether it takes jobs, or will when others leave; `draining`: jobs
    that run on it go on, and no new ones come."""

    name: str
    slots: int
    slots_used: int = 0
    enabled: bool = True
    draining: bool = False


@dataclass(frozen=True)
class Pool:
    """A resource pool: a partition, a queue, a machine."""

    name: str
    slot_type: SlotType
    slots_total: int
    slots_used: int = 0
    nodes: int = 1
    slots_per_node: int = 0  # the largest number of slots one node has
    description: str = ""
    accelerator: str = ""
    is_default: bool = False
    max_walltime: int | None = None  # seconds
    up: bool = True
    default_priority: int = 42  # of jobs that name none, where the dispatcher schedules
    members: Sequence[PoolNode] = ()  # its nodes, down ones too, where the question for pools shows them


@dataclass(frozen=True)
class Problem:
    """Something an administrator should mend, in words."""

    text: str
    mend: str
    fatal: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What a cluster is and can do, as found by `probe`."""

    scheduler: str  # "slurm", "pbs", "docker", "local"
    version: str
    accounting: bool = False  # ended jobs can be asked for after they left the queue
    impersonation: bool = False  # jobs can run as another user
    schedules: bool = False  # it orders and preempts jobs itself: priorities, weights and queue moves have a meaning
    avoids_nodes: bool = True  # it keeps a job off the nodes in `JobSpec.exclude_nodes`
    quiet_period: float = 0.0  # seconds after which an unlisted ambiguous submit is known not to have happened
    poll_interval: float = 10.0  # the shortest sensible time between two `observe` calls, seconds
    problems: Sequence[Problem] = ()


@dataclass(frozen=True)
class StreamPosition:
    """A place in a report stream: behind line number `line`, which ends at byte `offset` (-1: that is not known)."""

    line: int = 0
    offset: int = 0


@dataclass(frozen=True)
class StreamPiece:
    """Whole lines of a report stream, a few megabytes at most. One that is too long to be a report is given as an empty
    line."""

    content: bytes
    end: StreamPosition
    more: bool = False  # there are others behind them
    cut: bool = False  # the file is longer than what may be read of it


@dataclass(frozen=True)
class NotStarted:
    """Why a job's process did not start: `text` is a sentence without a full stop, the cause before the evidence."""

    text: str
    final: bool  # no other attempt would go better


@dataclass(frozen=True)
class Remains:
    """What a job left in its folder: exit records by node rank, unshipped report streams, the scheduler's log."""

    exits: Mapping[int, bytes] = field(default_factory=dict)  # node rank -> JSON of the exit record
    streams: Mapping[str, StreamPiece] = field(default_factory=dict)  # stream name -> JSON lines of it
    output_tail: str | None = None  # end of what the scheduler captured of the job script; None: no file of it is there
    not_started: NotStarted | None = None  # what that output says of a container that did not start


@dataclass(frozen=True)
class Setup:
    """What the master hands to a dispatcher when it makes one."""

    name: str  # the cluster's name in the master's configuration
    prefix: str  # every token of this master starts so; `observe` lists only these
    job_root: Path  # job folders are `job_root/token`; on a file system that the nodes see under the same path
    options: Mapping[str, Any] = field(default_factory=dict)  # its section of the master's configuration


@runtime_checkable
class Dispatcher(Protocol):
    """One cluster. The master makes it by calling the announced class with a `Setup`; the constructor may raise
    `Rejected` with a sentence for the administrator, and does no slow work."""

    name: str  # the cluster's name in the master's configuration
    kind: str  # the short name it was chosen by

    def probe(self) -> Capabilities:
        """Look at the cluster. Raises Unreachable; never changes anything."""

    def pools(self) -> Sequence[Pool]:
        """All pools with live slot counts. Raises Unreachable."""

    def check(self, spec: JobSpec) -> Sequence[str]:
        """Sentences that say why `spec` can never run here; empty when nothing speaks against it. Must be quick
        and must not submit anything."""

    def submit(self, spec: JobSpec) -> JobRef:
        """Stage the job folder, render the script, hand it over under `spec.token`. Idempotent in its staging; two jobs
        of one token never run at once, whoever submits twice. A refused job may still show up in a snapshot as FAILED
        with `never`. Raises Rejected, Transient, Ambiguous, Unreachable."""

    def observe(self) -> Snapshot:
        """All our jobs in one bulk query. Raises Unreachable (or Transient); never returns a partial list."""

    def cancel(self, refs: Sequence[JobRef]) -> None:
        """Ask for the end of jobs. Idempotent; an unknown or ended job is no error. Verified by `observe`."""

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        """Deliver a signal to the runtime of each job. Best effort."""

    def explain(self, ref: JobRef) -> Explanation:
        """How a job that left the queue ended, from accounting if there is any. Raises Unreachable."""

    def collect(
        self, token: str, user: str | None = None, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30
    ) -> Remains:
        """What the job left in its folder, read as `user` (the job's). Empty `Remains` when there is nothing. Of its
        report streams a few megabytes together: from `places` on, from the beginning of those it does not name, and
        nothing without it; `most`: bytes of each that may be read at all. `folder.JobFolder` does it.
        Raises Unreachable, Transient."""

    def forget(self, token: str, user: str | None = None) -> None:
        """Remove the job folder as `user`. Called once everything in it has been read. Idempotent. Raises Transient
        while the job still lives, Unreachable."""

    def log_path(self, token: str) -> Path | None:
        """Where the scheduler writes the job's own output, if it is a file that this machine can name."""

    def close(self) -> None:
        """Let go of connections and threads. Jobs go on."""


class HeldFiles(Protocol):
    """Files of one account that this process must not, or cannot, touch itself."""

    def remove(self, folder: str, patterns: Sequence[str], since: float | None) -> Mapping[str, int]:
        """Remove what matches, as that account, by the rules of `access.trees`; the folder goes when it is empty then.
        `since`: epoch seconds, it cannot be older. Returns what is left: bytes by path, folders with a slash at the
        end. Raises trees.Untouched, trees.Unfinished, Rejected, Transient, Unreachable."""


@runtime_checkable
class HoldsFiles(Protocol):
    """A dispatcher whose jobs' files are on machines, or belong to accounts, that this process is not."""

    def files(self, user: str | None) -> HeldFiles | None:
        """The files of jobs that run as `user`; None when this process is that account on that machine."""


@runtime_checkable
class Announces(Protocol):
    """A dispatcher whose job folders this machine may not see, and that can leave a file there all the same."""

    def announce(self, url: str) -> int | None:
        """Write the master's address into `master-url` in the folder of the job folders: jobs that cannot reach the one
        they were given read it there. Returns the uid that the file belongs to there; jobs believe that account beside
        their own and root's, and with None only these. Idempotent. Raises Rejected, Transient, Unreachable."""
