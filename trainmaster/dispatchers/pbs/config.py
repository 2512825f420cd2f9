"""The `pbs` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from trainmaster.dispatchers.batch.options import BatchOptions, CommandPaths
from trainmaster.dispatchers.pbs.commands import PbsPrograms
from trainmaster.dispatchers.pbs.formats import Format

_USUAL_BIN = "/opt/pbs/bin"


class HostStart(enum.StrEnum):
    """How a job's script starts what runs on its other hosts."""

    AUTO = "auto"  # the first of the following that works there
    TMRSH = "pbs_tmrsh"
    PBSDSH = "pbsdsh"
    SSH = "ssh"


class NodePlacement(enum.StrEnum):
    """How PBS lays the nodes of a trial out."""

    SCATTER = "scatter"  # each on a host of its own
    VSCATTER = "vscatter"  # each on a virtual node of its own
    FREE = "free"  # anywhere


class PbsCommands(CommandPaths):
    qsub: str | None = None
    qstat: str | None = None
    qselect: str | None = None
    qdel: str | None = None
    qsig: str | None = None
    pbsnodes: str | None = None


class PbsOptions(BatchOptions):
    """Options of a PBS cluster. Times are seconds."""

    scheduler: ClassVar[str] = "PBS"
    # What tells PBS's commands where its server is.
    inherited: ClassVar[tuple[str, ...]] = ("PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC")

    gpu_resource: str = Field(default="ngpus", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", description="what counts GPUs")
    commands: PbsCommands = PbsCommands()
    host_start: HostStart = HostStart.AUTO
    place: NodePlacement = NodePlacement.SCATTER
    query_format: Format = Format.DSV
    ended_listed_for: float = Field(default=600.0, ge=60, description="how long ended jobs are still observed")

    def programs(self) -> PbsPrograms:
        """PBS's commands, looked for on the master's own PATH, on the jobs', and where PBS usually stands."""
        here = f"{os.environ.get('PATH', '')}:{self.job_path}:{self.pbs_bin}"
        return PbsPrograms(**self.commands.found(None if self.ssh else here))

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
