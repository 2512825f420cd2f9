"""The `local` resource manager's section of the master's configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from trainmaster.config.resource_managers import ClusterFacts, DispatcherOptions, SlotTypeName
from trainmaster.config.shapes import AbsolutePath, Name, Positive
from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.sections import read_section


class LocalOptions(DispatcherOptions):
    """Options of this machine as a cluster. Times are seconds."""

    slots: Positive = Field(default_factory=lambda: os.cpu_count() or 1)
    slot_type: SlotTypeName = SlotType.CPU
    pool_name: Name = "default"
    container_command: AbsolutePath | None = None
    """Full path of the container runtime's program; without it, PATH decides."""
    poll_interval: float = Field(default=1.0, gt=0)
    """Seconds between two queries of the jobs."""
    cancel_grace: float = Field(default=30.0, ge=0)
    """Seconds between SIGTERM and SIGKILL."""
    orphaned_after: float = Field(default=86400.0, ge=0)
    """Seconds without a sign of the master until a job ends, since no scheduler's time limit does it; 0: never."""
    scratch: list[AbsolutePath] = Field(default_factory=list)
    """Folders for temporary files, tried in order."""
    python: Name = "python3"
    bash: AbsolutePath = "/bin/bash"

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> LocalOptions:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        made = read_section(cls, options, "local")
        try:
            only = made.container(made.container_run_type).scheduler
        except UnknownRuntime as error:
            raise Rejected(f"The local resource manager's container_run_type is wrong: {error}") from None
        if only:
            raise Rejected(
                f"The local resource manager's container_run_type is wrong: {made.container_run_type} works under "
                f"{only} only."
            )
        return made

    def facts(self) -> ClusterFacts:
        return ClusterFacts(orphaned_after=self.orphaned_after)

    def pool_names(self) -> Sequence[str]:
        return [self.pool_name]

    def container(self, name: str) -> ContainerRuntime:
        """Return the container runtime called `name`. Raises UnknownRuntime."""
        made = container_runtime(name, self.container_command)
        program = None if self.container_command or not made.program else shutil.which(made.program)
        return container_runtime(name, program) if program else made
