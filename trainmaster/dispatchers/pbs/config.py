"""The `pbs` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import enum
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.access.config import AccessOptions
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.pbs.commands import Programs
from trainmaster.dispatchers.pbs.formats import Format
from trainmaster.dispatchers.shell import DEFAULT_PATH

# What tells PBS's commands where its server is; the master's own environment may have them.
_INHERITED = ("PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC")
_USUAL_BIN = "/opt/pbs/bin"


class HostStart(enum.StrEnum):
    """How a job's script starts what runs on its other hosts."""

    AUTO = "auto"  # the first of the following that works there
    TMRSH = "pbs_tmrsh"
    PBSDSH = "pbsdsh"
    SSH = "ssh"


class Place(enum.StrEnum):
    """How PBS lays the nodes of a trial out."""

    SCATTER = "scatter"  # each on a host of its own
    VSCATTER = "vscatter"  # each on a virtual node of its own
    FREE = "free"  # anywhere


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CommandPaths(_Section):
    """Full paths of PBS's commands, for a site that keeps them off the PATH."""

    qsub: str | None = None
    qstat: str | None = None
    qselect: str | None = None
    qdel: str | None = None
    qsig: str | None = None
    pbsnodes: str | None = None

    def programs(self, path: str | None) -> Programs:
        """Full paths where the command is found on `path`, so that jobs need not inherit the master's PATH. None: the
        cluster is elsewhere, and its own PATH decides."""
        found = {
            name: given or (shutil.which(name, path=path) if path else None) or name
            for name, given in self.model_dump().items()
        }
        return Programs(**found)


class QueueOptions(_Section):
    """What the administrator says of one queue."""

    description: str | None = None
    slot_type: SlotType | None = None
    slots_per_node: int | None = Field(default=None, gt=0)
    gres_supported: bool | None = None


class PbsOptions(AccessOptions):
    """Options of a PBS cluster. Times are seconds."""

    container_run_type: str = "apptainer"
    container_command: str | None = Field(default=None, description="full path of apptainer or singularity")
    apptainer_image_root: str | None = None
    singularity_image_root: str | None = None
    slot_type: SlotType | None = Field(default=None, description="for all queues; else GPUs decide")
    slots_per_node: int | None = Field(default=None, gt=0, description="where PBS does not know the GPUs")
    gres_supported: bool = Field(default=True, description="false: PBS knows no GPUs, whole nodes are asked for")
    gpu_resource: str = Field(default="ngpus", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", description="what counts GPUs")
    gpu_libraries: bool = Field(default=True, description="give containers the host's CUDA or ROCm libraries")
    partition_overrides: Mapping[str, QueueOptions] = Field(default_factory=dict)
    commands: CommandPaths = CommandPaths()
    job_path: str = Field(default=DEFAULT_PATH, description="PATH of jobs")
    environment: Mapping[str, str] = Field(default_factory=dict, description="for example PBS_CONF_FILE")
    scratch: tuple[str, ...] = Field(default=(), description="folders on nodes for temporary files")
    python: str = Field(default="python3", description="Python 3.8 or later, in the container or on the node")
    bash: str = "/bin/bash"
    host_start: HostStart = HostStart.AUTO
    place: Place = Place.SCATTER
    query_format: Format = Format.DSV
    poll_interval: float = Field(default=10.0, gt=0)
    pools_cached_for: float = Field(default=60.0, ge=0)
    ended_listed_for: float = Field(default=600.0, ge=60, description="how long ended jobs are still observed")
    submits_per_second: float = Field(default=2.0, gt=0)
    submit_burst: int = Field(default=20, ge=1)
    submit_deadline: float = Field(default=120.0, gt=0)
    query_deadline: float = Field(default=60.0, gt=0)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> PbsOptions:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        try:
            made = cls.model_validate(dict(options))
            container_runtime(made.container_run_type, made.container_command)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc'])) or 'the section'}: {fault['msg']}" for fault in error.errors()
            )
            raise Rejected(f"The PBS resource manager's configuration is wrong: {faults}.") from None
        except UnknownRuntime as error:
            raise Rejected(f"The PBS resource manager's container_run_type is wrong: {error}") from None
        return made

    def programs(self) -> Programs:
        """PBS's commands, looked for on the master's own PATH, on the jobs', and where PBS usually stands."""
        here = f"{os.environ.get('PATH', '')}:{self.job_path}:{self.pbs_bin}"
        return self.commands.programs(None if self.ssh else here)

    @property
    def command_path(self) -> str:
        """PATH of PBS's commands."""
        return f"{self.job_path}:{self.pbs_bin}"

    @property
    def pbs_bin(self) -> str:
        """The folder of PBS's commands, as pbs.conf has it; on a cluster elsewhere the usual one."""
        environment = self.client_environment
        if "PBS_EXEC" in environment:
            return f"{environment['PBS_EXEC']}/bin"
        if self.ssh:
            return _USUAL_BIN
        try:
            text = Path(environment.get("PBS_CONF_FILE", "/etc/pbs.conf")).read_text()
        except (OSError, UnicodeDecodeError):
            return _USUAL_BIN
        found = re.search(r"^\s*PBS_EXEC\s*=\s*(\S+)", text, re.MULTILINE)
        return f"{found[1]}/bin" if found else _USUAL_BIN

    def container(self, name: str) -> ContainerRuntime:
        """The container runtime called `name`, with its command where this machine has it."""
        return container_runtime(name, self.container_command or (None if self.ssh else shutil.which(name)))

    @property
    def image_root(self) -> str | None:
        return self.apptainer_image_root or self.singularity_image_root

    @property
    def client_environment(self) -> dict[str, str]:
        """What PBS's commands get beside the basics."""
        names = () if self.ssh else _INHERITED
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {**inherited, **self.environment}

    def queue(self, name: str) -> QueueOptions:
        """What is said of a queue; the case of its name does not matter."""
        found = (own for key, own in self.partition_overrides.items() if key.lower() == name.lower())
        return next(found, QueueOptions())

    def node_size(self, queue: str) -> int | None:
        """Slots of a node as the administrator declares them."""
        return self.queue(queue).slots_per_node or self.slots_per_node

    def knows_gpus(self, queue: str) -> bool:
        """True when GPUs are asked for by name."""
        own = self.queue(queue).gres_supported
        return self.gres_supported if own is None else own

    def slots_are(self, queue: str, has_gpus: bool) -> SlotType:
        """What a slot of a queue is."""
        return self.queue(queue).slot_type or self.slot_type or (SlotType.CUDA if has_gpus else SlotType.CPU)
