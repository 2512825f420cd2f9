"""Value types of the dispatcher contract: jobs and pools as dispatchers and the master describe them to each other.

Times are seconds since the epoch (UTC) unless a name says otherwise; sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.slots import SlotType


class JobState(enum.StrEnum):
    """State of a job at its scheduler, in the words of the master. Order of progress: see `rank`."""

    QUEUED = "QUEUED"  # waiting for resources
    HELD = "HELD"  # waiting for a person; not terminal
    STARTING = "STARTING"  # resources given, nodes being prepared
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    FINISHING = "FINISHING"  # the script has ended or is being ended; the outcome is not final
    COMPLETED = "COMPLETED"  # ended with status 0; the runtime's exit record takes precedence
    FAILED = "FAILED"  # ended with another status
    CANCELLED = (
        "CANCELLED"  # removed by a person or by us; what the scheduler shows to be its own doing is another state
    )
    WALLTIME = "WALLTIME"  # the time limit or a deadline ended it
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PREEMPTED = "PREEMPTED"  # the scheduler took the resources for another job
    INFRASTRUCTURE = "INFRASTRUCTURE"  # node failure, boot failure, launch failure: not the user's fault
    UNKNOWN = "UNKNOWN"  # a scheduler's word that is not known: the master keeps the last state

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
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


class Canceller(enum.StrEnum):
    """Who cancelled a job, as far as its scheduler's record names somebody."""

    UNKNOWN = "unknown"  # nobody, or an account under which administrators and the scheduler itself act
    PERSON = "person"  # an account under which the scheduler never acts


class Signal(enum.StrEnum):
    """Signals that `Dispatcher.signal` can deliver to the runtime in a job."""

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
    """Container settings of a job. `runtime` is a name of `trainmaster.containers`."""

    runtime: str = "none"  # apptainer, docker, ..., none
    image: str = ""
    binds: Sequence[BindMount] = ()
    shm_size: int | None = None  # bytes of /dev/shm, where the runtime can set it
    network_mode: str = ""  # as in `docker run --network`; empty: the dispatcher's configured mode
    force_pull: bool = False  # pull the image again even if the node has it
    devices: Sequence[DeviceMount] = ()
    add_capabilities: Sequence[str] = ()  # names as in capabilities(7), with or without CAP_
    drop_capabilities: Sequence[str] = ()
    root_capabilities: Sequence[str] = ()  # what the job needs if it runs as root; ignored for other accounts


@dataclass(frozen=True)
class BindMount:
    """A file or folder of the host in the container."""

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
    """A file that must be in the job folder, owned by the job's user, before the job can start."""

    content: bytes
    mode: int = 0o600


@dataclass(frozen=True)
class SharedFile:
    """A file directly in the job folder that many jobs have in common. It may stand once for all jobs of an account,
    with a link to it in each job folder (`folder.JobFolder.stage_sharing`); a dispatcher may as well copy it like any
    other. `read` returns its content, and may raise DispatcherError."""

    sha256: str  # of the content, hexadecimal
    read: Callable[[], bytes] = field(repr=False)
    mode: int = 0o400
    optional: bool = False  # where it cannot be shared the job does without it

    @property
    def content(self) -> bytes:
        return self.read()


JobFile = StagedFile | SharedFile


@dataclass(frozen=True)
class JobSpec:
    """Everything a dispatcher needs to run one allocation. Values are data and never interpreted by a shell."""

    token: str
    allocation_id: str
    pool: str
    slots: int  # 0 for a job without accelerators or CPU shares of its own
    slot_type: SlotType
    slots_per_node: int | None = None  # of the user's section for this dispatcher, as `UserOptions` has it
    single_node: bool = False  # all slots on one node or nothing
    container: ContainerSpec = field(default_factory=ContainerSpec)
    files: Mapping[str, JobFile] = field(default_factory=dict)  # path below the job folder -> file
    user: str | None = None  # account to run as; None is the account the master runs under
    options: Mapping[str, Any] = field(default_factory=dict)  # the user's section, as `UserOptions` has it
    labels: Sequence[str] = ()  # for the scheduler's accounting: project, workspace, labels
    exclude_nodes: Sequence[str] = ()  # if the scheduler supports it (`Capabilities.avoids_nodes`)
    walltime_grace: int = 120  # seconds before a time limit at which the runtime is warned
    trains: bool = False  # it saves its work and leaves when it is warned; a shell does not
    # Only for dispatchers that schedule themselves (`Capabilities.schedules`); a site's scheduler has its own policies.
    priority: int = 42  # 1 is served first, 99 last
    group: str = ""  # jobs that share one fair share (an experiment)
    weight: float = 1.0  # of the group's share
    max_slots: int | None = None  # that the group may hold at once
    preemptible: bool = True


@dataclass(frozen=True)
class Observation:
    """What one query showed of one job: the scheduler's own words, and the state that they are mapped to."""

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
    expected_start: float | None = None  # of one that waits: the scheduler's estimate, which it revises as it likes
    ends_at: float | None = None  # when the time limit ends it
    taken_back_at: float | None = None  # when the scheduler began to preempt it; the rest is its grace time
    restarts: int = 0  # how often the scheduler requeued it after it had begun
    submitted_at: float | None = None
    never: bool = False  # True when the scheduler can never start it as asked (impossible request)
    user: str | None = None  # whose job it is; None where the dispatcher runs everything under one account
    canceller: Canceller = Canceller.UNKNOWN  # of a CANCELLED job


@dataclass(frozen=True)
class ExternalJob:
    """A job in a pool that trainmaster did not submit: listed, so that users see what their jobs wait behind."""

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
    """All jobs that carry our prefix, seen by one bulk query. `jobs` may list a token more than once (jobs
    of earlier submits). `external` are live jobs of others that the same query showed; empty if it shows none.
    `controller_started_at`: when the scheduler's controller was started last, by its clock. None: not known, or not
    asked because the listing has no newly cancelled job; one further query at most."""

    taken_at: float
    jobs: Sequence[Observation]
    external: Sequence[ExternalJob] = ()
    controller_started_at: float | None = None


@dataclass(frozen=True)
class Explanation:
    """Why a job waits, or how it ended, in words for its owner."""

    text: str
    state: JobState = JobState.UNKNOWN
    raw_state: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    canceller: Canceller = Canceller.UNKNOWN  # of a CANCELLED job
    script_began: bool | None = None  # False: a cancelled job had nodes, but its script left no output file


@dataclass(frozen=True)
class PoolNode:
    """A node of a pool, as users see it. `enabled`: it accepts jobs, at once or when others end; `draining`: its jobs
    run to their end, and it accepts no new ones."""

    name: str
    slots: int
    slots_used: int = 0
    enabled: bool = True
    draining: bool = False


@dataclass(frozen=True)
class Problem:
    """Something that an administrator should fix: a sentence, and how to fix it. `fatal`: jobs will fail."""

    text: str
    fix: str
    fatal: bool = False


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
    exclusive: bool = False  # a node runs one job at a time
    default_priority: int = 42  # of jobs that name none, where the dispatcher schedules
    members: Sequence[PoolNode] = ()  # its nodes, down ones too, if the query for pools shows them
    problems: Sequence[Problem] = ()  # of its nodes: users see them in its description, administrators in `doctor`


@dataclass(frozen=True)
class FolderFacts:
    """A folder as an account sees it. `readable`: it may list and enter it; `writable`: it may make files in it."""

    mode: int  # as of stat(2)
    owner: int  # uid
    readable: bool
    writable: bool


@dataclass(frozen=True)
class Capabilities:
    """Scheduler, abilities and problems of a cluster, as found by `probe`."""

    scheduler: str  # "slurm", "pbs", "docker", "local"
    version: str
    accounting: bool = False  # ended jobs can be asked for after they left the queue
    impersonation: bool = False  # jobs can run as another user
    schedules: bool = False  # it orders and preempts jobs itself: priorities, weights and queue moves have an effect
    avoids_nodes: bool = True  # it keeps a job off the nodes in `JobSpec.exclude_nodes`
    quiet_period: float = 0.0  # seconds after which an unlisted ambiguous submit is known not to have happened
    poll_interval: float = 10.0  # the shortest sensible time between two `observe` calls, seconds
    problems: Sequence[Problem] = ()


class JobFeature(enum.StrEnum):
    """Settings that not every dispatcher supports, by their keys in an experiment's configuration."""

    REGISTRY_LOGIN = "environment.registry_auth"
    ADD_CAPABILITIES = "environment.add_capabilities"
    DROP_CAPABILITIES = "environment.drop_capabilities"
    DEVICES = "resources.devices"
    PRIORITY = "resources.priority"
    WEIGHT = "resources.weight"
    SHM_SIZE = "resources.shm_size"


@dataclass(frozen=True)
class Traits:
    """Properties that all clusters of a dispatcher share, known without asking one."""

    agents: bool = False  # it runs jobs through our agents, as `agents.AgentHub`
    supports: frozenset[JobFeature] = frozenset()  # supported settings, beside those of the container runtime
    user_section: str = ""  # section of experiments that it reads; empty: the one of its own name
    section_keys: frozenset[str] | None = None  # keys of that section that have an effect; None: all
    # Values for Determined's clients.
    resources_type: str = "slurm-job"
    scheduler_type: str = "PRIORITY"  # of SCHEDULER_TYPE_*
    fitting_policy: str = "BEST"  # of FITTING_POLICY_*
    waiting: str = ""  # what sentences about jobs in the queue begin with


@dataclass(frozen=True)
class StreamPosition:
    """A position in a report stream: behind line number `line`, which ends at byte `offset` (-1: not known)."""

    line: int = 0
    offset: int = 0


@dataclass(frozen=True)
class StreamPiece:
    """Whole lines of a report stream, a few megabytes at most. A line that is too long for a report becomes an empty
    one."""

    content: bytes
    end: StreamPosition
    more: bool = False  # more lines follow
    cut: bool = False  # the file is longer than the limit for reading


@dataclass(frozen=True)
class NotStarted:
    """Why a job's process did not start: `text` is a sentence without a full stop, the cause before the evidence."""

    text: str
    final: bool  # another attempt would fail in the same way
    uncharged: bool = False  # neither the owner nor the image is to blame: another attempt costs the trial no restart


@dataclass(frozen=True)
class Remains:
    """What a job left in its folder: exit records by node rank, unshipped report streams, the scheduler's log."""

    exits: Mapping[int, bytes] = field(default_factory=dict)  # node rank -> JSON of the exit record
    streams: Mapping[str, StreamPiece] = field(default_factory=dict)  # stream name -> JSON lines of it
    output_tail: str | None = None  # end of the job script's captured output; None: no such file
    not_started: NotStarted | None = None  # why the container did not start, from that output


@dataclass(frozen=True)
class Setup:
    """Arguments that the master passes to a dispatcher when it creates one."""

    name: str  # the cluster's name in the master's configuration
    prefix: str  # every token of this master starts with it; `observe` lists only these
    job_root: Path  # job folders are `job_root/token`; on a file system that the nodes see under the same path
    options: Mapping[str, Any] = field(default_factory=dict)  # its section of the master's file, checked by `Options`
