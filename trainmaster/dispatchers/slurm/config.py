"""The `slurm` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.access.config import AccessOptions
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.shell import DEFAULT_PATH
from trainmaster.dispatchers.slurm.commands import Programs
from trainmaster.dispatchers.slurm.resources import GpuDialect


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CommandPaths(_Section):
    """Full paths of Slurm's commands, for a site that keeps them off the PATH."""

    sbatch: str | None = None
    squeue: str | None = None
    scancel: str | None = None
    sinfo: str | None = None
    sacct: str | None = None
    scontrol: str | None = None

    def programs(self, path: str | None) -> Programs:
        """Full paths where the command is found on `path`, so that jobs need not inherit the master's PATH. None: the
        cluster is elsewhere, and its own PATH decides."""
        found = {
            name: given or (shutil.which(name, path=path) if path else None) or name
            for name, given in self.model_dump().items()
        }
        return Programs(**found)


class PartitionOptions(_Section):
    """What the administrator says of one partition."""

    description: str | None = None
    slot_type: SlotType | None = None
    slots_per_node: int | None = Field(default=None, gt=0)
    tres_supported: bool | None = None
    gres_supported: bool | None = None


class SlurmOptions(AccessOptions):
    """Options of a Slurm cluster. Times are seconds."""

    container_run_type: str = "apptainer"
    container_command: str | None = Field(default=None, description="full path of apptainer or singularity")
    apptainer_image_root: str | None = None
    singularity_image_root: str | None = None
    slot_type: SlotType | None = Field(default=None, description="for all partitions; else GPUs decide")
    slots_per_node: int | None = Field(default=None, gt=0, description="where Slurm does not know the GPUs")
    tres_supported: bool = True
    gres_supported: bool = True
    gpu_libraries: bool = Field(default=True, description="give containers the host's CUDA or ROCm libraries")
    partition_overrides: Mapping[str, PartitionOptions] = Field(default_factory=dict)
    commands: CommandPaths = CommandPaths()
    job_path: str = Field(default=DEFAULT_PATH, description="PATH of jobs")
    environment: Mapping[str, str] = Field(default_factory=dict, description="for example SLURM_CONF")
    scratch: tuple[str, ...] = Field(default=(), description="folders on nodes for temporary files")
    python: str = Field(default="python3", description="Python 3.8 or later, in the container or on the node")
    bash: str = "/bin/bash"
    reader: Literal["auto", "commands", "pyslurm"] = Field(
        default="commands",
        description="what lists jobs; pyslurm where one is installed that fits the cluster's release",
    )
    poll_interval: float = Field(default=10.0, gt=0)
    pools_cached_for: float = Field(default=60.0, ge=0)
    submits_per_second: float = Field(default=2.0, gt=0)
    submit_burst: int = Field(default=20, ge=1)
    # sbatch itself tries for 120 s when the queue is full; ending it earlier would leave its outcome unknown.
    submit_deadline: float = Field(default=150.0, ge=150.0)
    query_deadline: float = Field(default=60.0, gt=0)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> SlurmOptions:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        try:
            made = cls.model_validate(dict(options))
            container_runtime(made.container_run_type, made.container_command)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'the section'}: {fault['msg']}" for fault in error.errors()
            )
            raise Rejected(f"The Slurm resource manager's configuration is wrong: {faults}.") from None
        except UnknownRuntime as error:
            raise Rejected(f"The Slurm resource manager's container_run_type is wrong: {error}") from None
        return made

    def programs(self) -> Programs:
        """Slurm's commands, looked for on the master's own PATH and on the jobs'."""
        return self.commands.programs(None if self.ssh else f"{os.environ.get('PATH', '')}:{self.job_path}")

    def container(self, name: str) -> ContainerRuntime:
        """The container runtime called `name`, with its command where this machine has it."""
        return container_runtime(name, self.container_command or (None if self.ssh else shutil.which(name)))

    @property
    def image_root(self) -> str | None:
        return self.apptainer_image_root or self.singularity_image_root

    @property
    def client_environment(self) -> dict[str, str]:
        """What Slurm's commands and jobs get beside the basics; SLURM_CONF of the master's own environment too."""
        names = () if self.ssh else ("SLURM_CONF",)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {**inherited, **self.environment}

    def partition(self, name: str) -> PartitionOptions:
        """What is said of a partition; the case of its name does not matter."""
        found = (own for key, own in self.partition_overrides.items() if key.lower() == name.lower())
        return next(found, PartitionOptions())

    def node_size(self, partition: str) -> int | None:
        """Slots of a node as the administrator declares them."""
        return self.partition(partition).slots_per_node or self.slots_per_node

    def dialect(self, partition: str) -> GpuDialect:
        """How GPUs are asked for in a partition."""
        own = self.partition(partition)
        tres = self.tres_supported if own.tres_supported is None else own.tres_supported
        gres = self.gres_supported if own.gres_supported is None else own.gres_supported
        return GpuDialect.of(tres_supported=tres, gres_supported=gres)

    def slots_are(self, partition: str, has_gpus: bool) -> SlotType:
        """What a slot of a partition is."""
        return self.partition(partition).slot_type or self.slot_type or (SlotType.CUDA if has_gpus else SlotType.CPU)
