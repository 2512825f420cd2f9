"""The `resource_manager` sections of the master configuration: one model per built-in dispatcher."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from .messages import in_words
from .shapes import AbsolutePath, Line, Name, Natural, Port, Positive, Section, Whole, wrong
from .task_container import TaskContainerDefaults

ContainerRuntime = Name  # which there are, is the registry's to say: plugins bring more
SlotType = Literal["cuda", "rocm", "cpu"]


class _Manager(Section):
    superfluous: ClassVar[dict[str, str]] = {}
    """Keys that are read and do nothing here, each with what to know about it."""

    cluster_name: Name = "default"
    """What the cluster is called in listings of pools; one name per manager."""

    def options(self) -> dict[str, Any]:
        """What the dispatcher is given: the section as JSON values, with its defaults; the rest is left to it."""
        return self.model_dump(mode="json", exclude_none=True)


class LocalManager(_Manager):
    """This machine: no scheduler, no root, no daemon."""

    type: Literal["local"]
    slots: Positive = Field(default_factory=lambda: os.cpu_count() or 1)
    pool_name: Name = "default"
    job_storage_root: AbsolutePath | None = None
    container_run_type: ContainerRuntime = "none"
    container_command: AbsolutePath | None = None
    """The container runtime's program, when PATH does not say it."""
    scratch: list[AbsolutePath] | None = None
    """Folders for temporary files, tried in order."""
    poll_interval: float = Field(default=1.0, gt=0)
    """Seconds between two looks at the jobs."""
    cancel_grace: float | None = Field(default=None, ge=0)
    """Seconds between asking a job to end and ending it."""


class PartitionOverride(Section):
    """What is different in one partition."""

    description: Line | None = None
    rendezvous_network_interface: Line | None = None
    proxy_network_interface: Line | None = None
    slot_type: SlotType | None = None
    slots_per_node: Positive | None = None
    task_container_defaults: TaskContainerDefaults | None = None


class Commands(Section):
    """Where the scheduler's commands are, when PATH does not say it."""

    sbatch: AbsolutePath | None = None
    squeue: AbsolutePath | None = None
    sacct: AbsolutePath | None = None
    sinfo: AbsolutePath | None = None
    scancel: AbsolutePath | None = None
    scontrol: AbsolutePath | None = None


_PROJECT_SOURCE = re.compile(r"project|workspace|label(:.+)?")


def _project_source(value: str) -> str:
    if not _PROJECT_SOURCE.fullmatch(value):
        raise wrong(f"must be project, workspace, label or label:PREFIX, found {value!r}")
    return value


_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _resource_name(value: str) -> str:
    if not _RESOURCE.fullmatch(value):
        raise wrong(f"must be the name of a PBS resource such as ngpus, found {value!r}")
    return value


class Ssh(Section):
    """How to log in to a machine that has the scheduler's commands, for a master that is elsewhere."""

    host: Name
    port: Port = 22
    user: Name | None = None
    """The account for the master's own questions; without it, the one the master runs under."""
    identity_file: AbsolutePath | None = None
    """The private key; `{user}` in it stands for the account. Without it: the agent's and those in ~/.ssh."""
    known_hosts: AbsolutePath | None = None
    """The file with the hosts' keys, which are always checked; without it, ~/.ssh/known_hosts."""
    client: Literal["paramiko", "openssh"] = "paramiko"
    control_path: AbsolutePath | None = None
    """Socket of a connection that a person opened with `ssh -M -S`, for sites that ask for a second factor."""
    jump_host: Line | None = None
    """[user@]host[:port] to go through."""
    python: Line = "python3"
    """Python 3.8 or later there."""
    connect_timeout: float = Field(default=15.0, gt=0)
    sessions: Positive = 8
    """Commands at once on one connection; sshd allows 10 unless MaxSessions says otherwise."""

    @model_validator(mode="after")
    def _shared_by_openssh(self) -> Self:
        if self.control_path is not None and self.client != "openssh":
            raise wrong("only the system's OpenSSH can share a connection; set client: openssh", "control_path")
        return self


_LAUNCHER = "it belongs to Determined's launcher, which is not needed; remove it"


class HpcManager(_Manager):
    """What a Slurm and a PBS cluster have in common. Keys are Determined's, and a few of ours at the end."""

    superfluous: ClassVar[dict[str, str]] = dict.fromkeys(
        (
            "host",
            "port",
            "protocol",
            "security",
            "auth_file",
            "user_name",
            "group_name",
            "sudo_authorized",
            "path",
            "ld_library_path",
            "launcher_jvm_args",
        ),
        _LAUNCHER,
    )

    metadata: dict[str, Line] = Field(default_factory=dict)
    master_host: Line | None = None
    master_port: Port | None = None
    container_run_type: ContainerRuntime = "apptainer"
    slot_type: SlotType | None = None
    rendezvous_network_interface: Line | None = None
    proxy_network_interface: Line | None = None
    apptainer_image_root: AbsolutePath | None = None
    singularity_image_root: AbsolutePath | None = None
    job_storage_root: AbsolutePath | None = None
    """Job folders live below it; all nodes see it under this path."""
    tres_supported: bool = True
    gres_supported: bool = True
    default_aux_resource_pool: Line | None = None
    default_compute_resource_pool: Line | None = None
    job_project_source: Annotated[Line, AfterValidator(_project_source)] = "project"
    partition_overrides: dict[str, PartitionOverride] = Field(default_factory=dict)
    poll_interval: float = Field(default=10.0, gt=0)
    """Seconds between two questions to the scheduler."""
    slots_per_node: Positive | None = None
    environment: dict[str, Line] = Field(default_factory=dict)
    """For the scheduler's commands and for jobs, for example SLURM_CONF or PBS_CONF_FILE."""
    container_command: AbsolutePath | None = None
    """The container runtime's program on the nodes, when PATH does not say it."""
    gpu_libraries: bool = True
    """Give containers the host's CUDA or ROCm libraries."""
    scratch: list[AbsolutePath] | None = None
    """Folders on the nodes for temporary files, tried in order."""
    job_path: Line | None = None
    """PATH of jobs."""
    python: Line | None = None
    """Python 3.8 or later, in the container or on the node."""
    pools_cached_for: float | None = Field(default=None, ge=0)
    """Seconds for which a listing of partitions is good enough."""
    walltime_grace: Positive = 120
    """Seconds before a job's time limit at which its trial is asked to save its work and leave."""
    submits_per_second: float | None = Field(default=None, gt=0)
    query_deadline: float | None = Field(default=None, gt=0)
    """Seconds that a question to the scheduler may take."""
    ssh: Ssh | None = None
    """The cluster is reached over SSH; job folders are on its side only."""
    impersonation: Literal["none", "sudo", "ssh"] = "none"
    """Whether jobs run as the account that their user is linked to, and how the master becomes it."""
    helper: AbsolutePath | None = None
    """Where `trainmaster-helper` is installed, for impersonation by sudo."""
    require_user_link: bool = False
    """Refuse jobs of users who are not linked to an account, instead of running them as the master's."""
    external_jobs: bool = True
    """Show other people's jobs in the queue."""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        """`name` is what `cluster_name` was called before."""
        if not isinstance(data, dict):
            return data
        data = {key: value for key, value in data.items() if key not in cls.superfluous}
        if (name := data.pop("name", None)) is not None:
            if data.get("cluster_name") is not None:
                raise wrong("is the old word for cluster_name; keep cluster_name only", "name")
            data["cluster_name"] = name
        return data

    @model_validator(mode="after")
    def _one_image_root(self) -> Self:
        if self.apptainer_image_root is not None and self.singularity_image_root is not None:
            raise wrong("is the same as apptainer_image_root; keep one", "singularity_image_root")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.ssh is None and self.impersonation == "ssh":
            raise wrong("users can log in over SSH only where there is an ssh section", "impersonation")
        if self.ssh is not None and self.job_storage_root is None:
            raise wrong("is required with ssh: a folder on the cluster, not on this machine", "job_storage_root")
        if self.require_user_link and self.impersonation == "none":
            raise wrong("means nothing while impersonation is none", "require_user_link")
        return self

    def partition(self, name: str) -> PartitionOverride | None:
        """The override of a partition; its name's case does not matter."""
        return next((o for key, o in self.partition_overrides.items() if key.lower() == name.lower()), None)

    def options(self) -> dict[str, Any]:
        """As of every manager; GPU counts can only be tracked where generic resources are configured at all."""
        options = super().options()
        options["tres_supported"] = self.tres_supported and self.gres_supported
        return options


class SlurmManager(HpcManager):
    """A Slurm cluster."""

    type: Literal["slurm"]
    commands: Commands = Commands()
    reader: Literal["auto", "commands", "pyslurm"] | None = None
    """What lists jobs: squeue (the default), or pyslurm, where one is installed that fits the cluster's release."""


class PbsCommands(Section):
    """Where PBS's commands are, when neither PATH nor pbs.conf says it."""

    qsub: AbsolutePath | None = None
    qstat: AbsolutePath | None = None
    qselect: AbsolutePath | None = None
    qdel: AbsolutePath | None = None
    qsig: AbsolutePath | None = None
    pbsnodes: AbsolutePath | None = None


class PbsManager(HpcManager):
    """A PBS cluster: OpenPBS or PBS Pro. A partition is a queue; `tres_supported` changes nothing."""

    type: Literal["pbs"]
    commands: PbsCommands = PbsCommands()
    gpu_resource: Annotated[Line, AfterValidator(_resource_name)] = "ngpus"
    """The resource that counts a node's GPUs; sites choose its name."""
    place: Literal["scatter", "vscatter", "free"] = "scatter"
    """How the nodes of a trial lie: each on a host of its own, on a virtual node of its own, or anywhere."""
    host_start: Literal["auto", "pbs_tmrsh", "pbsdsh", "ssh"] = "auto"
    """How a job starts what runs on its other hosts; by itself it takes the first that works there."""
    query_format: Literal["dsv", "json", "text"] = "dsv"
    """What qstat is asked to print. Only dsv cannot be forged by the owner of a job."""
    ended_listed_for: float | None = Field(default=None, ge=60)
    """Seconds for which ended jobs are still looked at."""
    submit_deadline: float | None = Field(default=None, gt=0)
    """Seconds that qsub may take."""


class PoolScheduler(Section):
    """How a pool of Docker hosts is scheduled."""

    type: Literal["priority", "fair_share"] = "priority"
    fitting_policy: Literal["best", "worst"] = "best"
    """best packs jobs onto few hosts, worst spreads them."""
    preemption: bool = False
    """Whether a job may have others of lower priority leave."""
    default_priority: Annotated[Whole, Field(ge=1, le=99)] = 42
    """Of experiments that name none; 1 is served first."""


class AgentPool(Section):
    """A pool of Docker hosts; an agent names it when it joins."""

    superfluous: ClassVar[frozenset[str]] = frozenset(
        {"provider", "agent_reconnect_wait", "agent_reattach_enabled", "kubernetes_namespace", "max_slots"}
    )
    ignored: ClassVar[frozenset[str]] = superfluous

    pool_name: Name
    description: Line = ""
    scheduler: PoolScheduler | None = None
    max_aux_containers_per_agent: Natural = 100
    """Jobs without slots that one host may run at once."""
    slot_type: SlotType = "cpu"
    """Of a pool that no agent has joined yet."""
    task_container_defaults: TaskContainerDefaults | None = None


class AgentManager(_Manager):
    """Docker hosts that run our agent; `type: agent` is Determined's word for it."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"no_default_resource_pools", "require_authentication", "client_ca", "agent_reconnect_wait"}
    )

    type: Literal["docker"]
    container_run_type: Literal["docker"] = "docker"
    scheduler: PoolScheduler = PoolScheduler()
    """Of pools that name none of their own."""
    resource_pools: list[AgentPool] = Field(default_factory=list)
    """The first takes agents that name no pool; without any there is one, called default."""
    default_aux_resource_pool: Line | None = None
    default_compute_resource_pool: Line | None = None
    master_host: Line | None = None
    master_port: Port | None = None
    job_storage_root: AbsolutePath | None = None
    """Where the master keeps what belongs to jobs; the hosts do not see it."""
    agent_token_file: AbsolutePath | None = None
    """A file with the agents' secret; without it one is made in the folder of the jobs."""
    job_user: Line | None = None
    """The account that the agents were given as --job-user, as this machine knows it: checkpoints are its files."""
    network_mode: Line = "host"
    """Of containers. Trials on several hosts need host."""
    python: Line | None = None
    """Python 3.8 or later in the images."""
    poll_interval: float = Field(default=1.0, gt=0)
    cancel_grace: float = Field(default=30.0, ge=0)
    """Seconds between SIGTERM and SIGKILL."""
    preemption_grace: float = Field(default=600.0, ge=0)
    """Seconds that a job has to save its work when others come first."""
    agent_timeout: float = Field(default=60.0, gt=0)
    """Seconds of silence after which an agent counts as lost."""
    agent_reattach: float = Field(default=300.0, ge=0)
    """Seconds after that for which its jobs are waited for."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type") in AGENT_WORDS:
            return {**data, "type": "docker"}
        return data

    def options(self) -> dict[str, Any]:
        """As of every manager; a pool's scheduler says only what is different from the manager's."""
        options = super().options()
        for pool, made in zip(self.resource_pools, options["resource_pools"], strict=True):
            own = pool.scheduler.model_dump(mode="json", exclude_unset=True) if pool.scheduler else {}
            made["scheduler"] = {**options["scheduler"], **own}
        return options

    @model_validator(mode="after")
    def _distinct_pools(self) -> Self:
        names = [pool.pool_name for pool in self.resource_pools]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise wrong(f"there is another pool called {name!r}", "resource_pools", i, "pool_name")
        return self


AGENT_WORDS = ("docker", "agent")


class PluginManager(_Manager):
    """Any other dispatcher that is installed; it checks its own options."""

    model_config = ConfigDict(extra="allow")
    type: Name
    container_run_type: ContainerRuntime = "none"

    @property
    def job_storage_root(self) -> str | None:
        """As of the built-in ones, if the plugin's section has it."""
        found = (self.model_extra or {}).get("job_storage_root")
        return str(found) if found else None


BUILT_IN = ("local", "slurm", "pbs", "docker")


def _typed(value: Any) -> Any:
    if isinstance(value, _Manager):
        return value
    if not isinstance(value, dict):
        raise wrong(f"a mapping (key: value) is wanted, found {in_words(value)}")
    if not isinstance(value.get("type"), str):
        raise wrong(f"is required: {', '.join(BUILT_IN)}, or the name of an installed dispatcher", "type")
    return value


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if kind in AGENT_WORDS:
        kind = "docker"
    return f"<{kind}>" if kind in BUILT_IN else "<plugin>"


ResourceManager = Annotated[
    Annotated[LocalManager, Tag("<local>")]
    | Annotated[SlurmManager, Tag("<slurm>")]
    | Annotated[PbsManager, Tag("<pbs>")]
    | Annotated[AgentManager, Tag("<docker>")]
    | Annotated[PluginManager, Tag("<plugin>")],
    Discriminator(_tag),
    BeforeValidator(_typed),
]
