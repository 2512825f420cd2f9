"""The `pbs` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from trainmaster.config.shapes import AbsolutePath, Line, one_of, wrong
from trainmaster.dispatchers.batch.options import BatchOptions, CommandPaths
from trainmaster.dispatchers.pbs.commands import PbsPrograms
from trainmaster.dispatchers.pbs.formats import Format

_USUAL_BIN = "/opt/pbs/bin"
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _resource_name(value: str) -> str:
    if not _RESOURCE.fullmatch(value):
        raise wrong(f"must be the name of a PBS resource such as ngpus, found {value!r}")
    return value


class HostStart(enum.StrEnum):
    """How a job's script starts processes on its other hosts."""

    AUTO = "auto"  # the first of the following that works there
    TMRSH = "pbs_tmrsh"
    PBSDSH = "pbsdsh"
    SSH = "ssh"


class NodePlacement(enum.StrEnum):
    """How PBS places the nodes of a trial."""

    SCATTER = "scatter"  # each on a host of its own
    VSCATTER = "vscatter"  # each on a virtual node of its own
    FREE = "free"  # anywhere


class PbsCommands(CommandPaths):
    qsub: AbsolutePath | None = None
    qstat: AbsolutePath | None = None
    qselect: AbsolutePath | None = None
    qdel: AbsolutePath | None = None
    qsig: AbsolutePath | None = None
    pbsnodes: AbsolutePath | None = None


class PbsOptions(BatchOptions):
    """Options of a PBS cluster: OpenPBS or PBS Pro. A partition is a queue. Times are seconds."""

    scheduler: ClassVar[str] = "PBS"
    # Variables that name the server to PBS's commands.
    inherited: ClassVar[tuple[str, ...]] = ("PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC")

    commands: PbsCommands = PbsCommands()
    gpu_resource: Annotated[Line, AfterValidator(_resource_name)] = "ngpus"
    """The resource that counts a node's GPUs; sites choose its name."""
    place: Annotated[NodePlacement, one_of(NodePlacement)] = NodePlacement.SCATTER
    """How the nodes of a trial are placed."""
    host_start: Annotated[HostStart, one_of(HostStart)] = HostStart.AUTO
    """How a job starts processes on its other hosts; without it, the first way that works there."""
    query_format: Annotated[Format, one_of(Format)] = Format.DSV
    """Output format of qstat. Only dsv cannot be forged by the owner of a job."""
    ended_listed_for: float = Field(default=600.0, ge=60)
    """Seconds for which ended jobs are still queried."""

    def programs(self) -> PbsPrograms:
        """Return PBS's commands, searched on the master's own PATH, on that of jobs, and in PBS's usual folder."""
        here = f"{os.environ.get('PATH', '')}:{self.job_path}:{self.pbs_bin}"
        return PbsPrograms(**self.commands.found(None if self.ssh else here))

    @property
    def command_path(self) -> str:
        """PATH of PBS's commands."""
        return f"{self.job_path}:{self.pbs_bin}"

    @property
    def pbs_bin(self) -> str:
        """The folder of PBS's commands, from pbs.conf; for a cluster on another machine the usual one."""
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
