"""Configuration keys that the sections of all batch schedulers share."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from trainmaster.config.resource_managers import ClusterFacts, HelperNeeds, SlotTypeName
from trainmaster.config.shapes import AbsolutePath, Line, Name, Positive, Section, wrong
from trainmaster.config.task_container import TaskContainerDefaults
from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.cluster.access.config import AccessOptions, Impersonation
from trainmaster.dispatchers.cluster.command_runner import DEFAULT_PATH
from trainmaster.dispatchers.sections import read_section

_PROJECT_SOURCE = re.compile(r"project|workspace|label(:.+)?")
_LAUNCHER = "it belongs to Determined's launcher, which is not needed; remove it"
_INTERFACES = {  # of Determined's harness
    "DET_SLURM_RENDEZVOUS_IFACE": "rendezvous_network_interface",
    "DET_SLURM_PROXY_IFACE": "proxy_network_interface",
}


def _project_source(value: str) -> str:
    if not _PROJECT_SOURCE.fullmatch(value):
        raise wrong(f"must be project, workspace, label or label:PREFIX, found {value!r}")
    return value


class CommandPaths(Section):
    """Full paths of a scheduler's commands, for a site where they are not on PATH. A field for each command."""

    def found(self, path: str | None) -> dict[str, str]:
        """Return the commands, with full paths if they are found on `path`, so that jobs need not inherit the master's
        PATH. None: the cluster is on another machine, whose PATH decides."""
        return {
            name: given or (shutil.which(name, path=path) if path else None) or name
            for name, given in self.model_dump().items()
        }


class PoolOptions(Section):
    """Settings of one partition or queue that differ from those of the cluster."""

    description: Line | None = None
    rendezvous_network_interface: Line | None = None
    proxy_network_interface: Line | None = None
    slot_type: SlotTypeName | None = None
    slots_per_node: Positive | None = None
    tres_supported: bool | None = None
    gres_supported: bool | None = None
    task_container_defaults: TaskContainerDefaults | None = None


class BatchOptions(AccessOptions):
    """Options of a cluster with a batch scheduler: Determined's keys, and a few of ours. Times are seconds."""

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
    shared_folder: ClassVar[bool] = True
    to_separate_users: ClassVar[str] = "Set impersonation, so that jobs run as the people who ask for them."
    scheduler: ClassVar[str]  # its name in sentences
    inherited: ClassVar[tuple[str, ...]]  # variables of the master's own environment that its commands need

    commands: CommandPaths = CommandPaths()
    metadata: dict[str, Line] = Field(default_factory=dict)
    container_run_type: Name = "apptainer"
    container_command: AbsolutePath | None = None
    """Full path of the container runtime's program on the nodes; without it, PATH there decides."""
    apptainer_image_root: AbsolutePath | None = None
    singularity_image_root: AbsolutePath | None = None
    slot_type: SlotTypeName | None = None
    """Slot type of all pools; without it, pools whose nodes have GPUs count GPUs, others CPUs."""
    slots_per_node: Positive | None = None
    """Slots per node, if the scheduler does not know the GPUs."""
    rendezvous_network_interface: Line | None = None
    proxy_network_interface: Line | None = None
    tres_supported: bool = True
    gres_supported: bool = True
    """Whether the scheduler knows GPUs; if not, it allocates whole nodes."""
    gpu_libraries: bool = True
    """Give containers the host's CUDA or ROCm libraries."""
    partition_overrides: dict[str, PoolOptions] = Field(default_factory=dict)
    job_project_source: Annotated[Line, AfterValidator(_project_source)] = "project"
    job_path: Line = DEFAULT_PATH
    """PATH of jobs."""
    environment: dict[str, Line] = Field(default_factory=dict)
    """Variables for the scheduler's commands and for jobs, for example SLURM_CONF or PBS_CONF_FILE."""
    scratch: list[AbsolutePath] = Field(default_factory=list)
    """Folders on the nodes for temporary files, tried in order."""
    python: Line = "python3"
    """Python 3.8 or later, in the container or on the node."""
    bash: AbsolutePath = "/bin/bash"
    poll_interval: float = Field(default=10.0, gt=0)
    """Seconds between two queries to the scheduler."""
    pools_cached_for: float = Field(default=60.0, ge=0)
    """Seconds for which a listing of partitions is reused."""
    walltime_grace: Positive = 120
    """Seconds before a job's time limit at which its trial is asked to save its work and leave."""
    submits_per_second: float = Field(default=2.0, gt=0)
    submit_burst: Positive = 20
    submit_deadline: float = Field(default=120.0, gt=0)
    """Seconds that a submit may take."""
    query_deadline: float = Field(default=60.0, gt=0)
    """Seconds that a query to the scheduler may take."""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        """Accept `name`, the former name of `cluster_name`."""
        if not isinstance(data, dict):
            return data
        data = {key: value for key, value in data.items() if key not in cls.superfluous}
        if (name := data.pop("name", None)) is not None:
            if data.get("cluster_name") is not None:
                raise wrong("is the old name of cluster_name; keep cluster_name only", "name")
            data["cluster_name"] = name
        return data

    @model_validator(mode="after")
    def _one_image_root(self) -> Self:
        if self.apptainer_image_root is not None and self.singularity_image_root is not None:
            raise wrong("is the same as apptainer_image_root; keep one", "singularity_image_root")
        return self

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Self:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        made = read_section(cls, options, cls.scheduler)
        try:
            only = container_runtime(made.container_run_type, made.container_command).scheduler
        except UnknownRuntime as error:
            raise Rejected(f"The {cls.scheduler} resource manager's container_run_type is wrong: {error}") from None
        if only not in ("", cls.scheduler):
            raise Rejected(
                f"The {cls.scheduler} resource manager's container_run_type is wrong: {made.container_run_type} works "
                f"under {only} only."
            )
        return made

    def container(self, name: str) -> ContainerRuntime:
        """Return the container runtime called `name`, with its full path if this machine has it. Raises
        UnknownRuntime."""
        made = container_runtime(name, self.container_command)
        program = None if self.container_command or self.ssh or not made.program else shutil.which(made.program)
        return container_runtime(name, program) if program else made

    def facts(self) -> ClusterFacts:
        users = self.impersonation is not Impersonation.NONE
        return ClusterFacts(
            here=self.ssh is None,
            runs_as_users=users,
            runs_as_master=not (users and self.require_user_link),
            account=self.ssh.user if self.ssh else None,
            shows_external=self.external_jobs,
            project_source=self.job_project_source,
            walltime_grace=self.walltime_grace,
        )

    def image_folder(self) -> tuple[str, str | None] | None:
        makes = self.container_run_type in ("apptainer", "singularity")
        program = (self.container_command or self.container_run_type) if makes else None
        return (self.image_root, program) if self.image_root else None

    def helper_needs(self) -> HelperNeeds:
        commands = self.commands.model_dump(exclude_none=True)
        return HelperNeeds(self.helper, self.command_path, commands, self.environment)

    @property
    def command_path(self) -> str:
        """PATH of the scheduler's commands."""
        return self.job_path

    def pool_names(self) -> Sequence[str]:
        return list(self.partition_overrides)

    def pool_defaults(self, pool: str) -> TaskContainerDefaults | None:
        return self.pool(pool).task_container_defaults

    def pool_environment(self, pool: str) -> Mapping[str, str]:
        own = self.pool(pool)
        given = {name: getattr(own, key) or getattr(self, key) for name, key in _INTERFACES.items()}
        return {name: interface for name, interface in given.items() if interface}

    @property
    def image_root(self) -> str | None:
        return self.apptainer_image_root or self.singularity_image_root

    @property
    def client_environment(self) -> dict[str, str]:
        """Return the variables that the scheduler's commands get, beside the base environment."""
        names = () if self.ssh else self.inherited
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {**inherited, **self.environment}

    def pool(self, name: str) -> PoolOptions:
        """Return the settings of a partition or queue; the case of its name does not matter."""
        overrides = (own for key, own in self.partition_overrides.items() if key.lower() == name.lower())
        return next(overrides, PoolOptions())

    def node_size(self, pool: str) -> int | None:
        """Return the slots of a node that the administrator configured; None without."""
        return self.pool(pool).slots_per_node or self.slots_per_node

    def knows_gpus(self, pool: str) -> bool:
        """Whether the scheduler knows the pool's GPUs, so that jobs can request them."""
        own = self.pool(pool).gres_supported
        return self.gres_supported if own is None else own

    def slots_are(self, pool: str, has_gpus: bool) -> SlotType:
        """Return the slot type of a pool."""
        return self.pool(pool).slot_type or self.slot_type or (SlotType.CUDA if has_gpus else SlotType.CPU)
