"""The keys that the sections of all batch schedulers have."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.access.config import AccessOptions
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.command_runner import DEFAULT_PATH
from trainmaster.dispatchers.section import read_section


class CommandPaths(BaseModel):
    """Full paths of a scheduler's commands, for a site that keeps them off the PATH. A field for each command."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def found(self, path: str | None) -> dict[str, str]:
        """Full paths where the command is found on `path`, so that jobs need not inherit the master's PATH. None: the
        cluster is elsewhere, and its own PATH decides."""
        return {
            name: given or (shutil.which(name, path=path) if path else None) or name
            for name, given in self.model_dump().items()
        }


class PoolOptions(BaseModel):
    """What the administrator says of one partition or queue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    description: str | None = None
    slot_type: SlotType | None = None
    slots_per_node: int | None = Field(default=None, gt=0)
    tres_supported: bool | None = None
    gres_supported: bool | None = None


class BatchOptions(AccessOptions):
    """Options of a cluster with a batch scheduler. Times are seconds."""

    scheduler: ClassVar[str]  # its name in sentences
    inherited: ClassVar[tuple[str, ...]]  # variables of the master's own environment that its commands need

    container_run_type: str = "apptainer"
    container_command: str | None = Field(default=None, description="full path of the container runtime's program")
    apptainer_image_root: str | None = None
    singularity_image_root: str | None = None
    slot_type: SlotType | None = Field(default=None, description="for all pools; else GPUs decide")
    slots_per_node: int | None = Field(default=None, gt=0, description="where the scheduler does not know the GPUs")
    gres_supported: bool = Field(default=True, description="false: the scheduler knows no GPUs, it gives whole nodes")
    gpu_libraries: bool = Field(default=True, description="give containers the host's CUDA or ROCm libraries")
    partition_overrides: Mapping[str, PoolOptions] = Field(default_factory=dict)
    job_path: str = Field(default=DEFAULT_PATH, description="PATH of jobs")
    environment: Mapping[str, str] = Field(default_factory=dict, description="for example SLURM_CONF, PBS_CONF_FILE")
    scratch: tuple[str, ...] = Field(default=(), description="folders on nodes for temporary files")
    python: str = Field(default="python3", description="Python 3.8 or later, in the container or on the node")
    bash: str = "/bin/bash"
    poll_interval: float = Field(default=10.0, gt=0)
    pools_cached_for: float = Field(default=60.0, ge=0)
    submits_per_second: float = Field(default=2.0, gt=0)
    submit_burst: int = Field(default=20, ge=1)
    submit_deadline: float = Field(default=120.0, gt=0)
    query_deadline: float = Field(default=60.0, gt=0)

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
        """The container runtime called `name`, with its command where this machine has it. Raises UnknownRuntime."""
        made = container_runtime(name, self.container_command)
        found = None if self.container_command or self.ssh or not made.program else shutil.which(made.program)
        return container_runtime(name, found) if found else made

    @property
    def image_root(self) -> str | None:
        return self.apptainer_image_root or self.singularity_image_root

    @property
    def client_environment(self) -> dict[str, str]:
        """What the scheduler's commands get beside the basics."""
        names = () if self.ssh else self.inherited
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {**inherited, **self.environment}

    def pool(self, name: str) -> PoolOptions:
        """What is said of a partition or queue; the case of its name does not matter."""
        found = (own for key, own in self.partition_overrides.items() if key.lower() == name.lower())
        return next(found, PoolOptions())

    def node_size(self, pool: str) -> int | None:
        """Slots of a node as the administrator declares them."""
        return self.pool(pool).slots_per_node or self.slots_per_node

    def knows_gpus(self, pool: str) -> bool:
        """True when GPUs are asked for by name."""
        own = self.pool(pool).gres_supported
        return self.gres_supported if own is None else own

    def slots_are(self, pool: str, has_gpus: bool) -> SlotType:
        """What a slot of a pool is."""
        return self.pool(pool).slot_type or self.slot_type or (SlotType.CUDA if has_gpus else SlotType.CPU)
