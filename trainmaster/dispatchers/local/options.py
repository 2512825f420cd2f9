"""The `local` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.containers import ContainerRuntime, UnknownRuntime, container_runtime
from trainmaster.dispatchers.base import Rejected, SlotType
from trainmaster.dispatchers.section import read_section


class LocalOptions(BaseModel):
    """Options of this machine. Times are seconds."""

    # The section also holds the master's own keys; what may stand in it is checked where the file is read.
    model_config = ConfigDict(frozen=True, extra="ignore")

    slots: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    slot_type: SlotType = SlotType.CPU
    pool_name: str = "default"
    container_run_type: str = "none"
    container_command: str | None = None
    poll_interval: float = Field(default=1.0, gt=0)
    cancel_grace: float = Field(default=30.0, ge=0, description="between SIGTERM and SIGKILL")
    scratch: tuple[str, ...] = ()
    python: str = "python3"
    bash: str = "/bin/bash"

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

    def container(self, name: str) -> ContainerRuntime:
        """The container runtime called `name`. Raises UnknownRuntime."""
        made = container_runtime(name, self.container_command)
        found = None if self.container_command or not made.program else shutil.which(made.program)
        return container_runtime(name, found) if found else made
