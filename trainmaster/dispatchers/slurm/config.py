"""The `slurm` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from trainmaster.config.shapes import AbsolutePath
from trainmaster.dispatchers.batch.options import BatchOptions, CommandPaths
from trainmaster.dispatchers.slurm.commands import SlurmPrograms
from trainmaster.dispatchers.slurm.resources import GpuDialect


class SlurmCommands(CommandPaths):
    sbatch: AbsolutePath | None = None
    squeue: AbsolutePath | None = None
    scancel: AbsolutePath | None = None
    sinfo: AbsolutePath | None = None
    sacct: AbsolutePath | None = None
    scontrol: AbsolutePath | None = None


class SlurmOptions(BatchOptions):
    """Options of a Slurm cluster. Times are seconds."""

    scheduler: ClassVar[str] = "Slurm"
    inherited: ClassVar[tuple[str, ...]] = ("SLURM_CONF",)

    commands: SlurmCommands = SlurmCommands()
    reader: Literal["auto", "commands", "pyslurm"] = "commands"
    """How jobs are listed: by squeue, or by pyslurm, if one is installed that fits the cluster's release."""
    # sbatch itself tries for 120 s when the queue is full; ending it earlier would leave its outcome unknown.
    submit_deadline: float = Field(default=150.0, ge=150.0)

    def notes(self) -> Iterator[tuple[str, str]]:
        if self.tres_supported and not self.gres_supported:
            yield "gres_supported", "false makes tres_supported false too"

    def programs(self) -> SlurmPrograms:
        """Return Slurm's commands, searched on the master's own PATH and on that of jobs."""
        return SlurmPrograms(
            **self.commands.found(None if self.ssh else f"{os.environ.get('PATH', '')}:{self.job_path}")
        )

    def dialect(self, partition: str) -> GpuDialect:
        """Return how GPUs are requested in a partition."""
        own = self.pool(partition).tres_supported
        # GPU counts can only be tracked where generic resources are configured at all.
        tres = self.tres_supported and self.gres_supported if own is None else own
        return GpuDialect.of(tres_supported=tres, gres_supported=self.knows_gpus(partition))
