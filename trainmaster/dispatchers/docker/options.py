"""The `docker` resource manager's section of the master's configuration, as this dispatcher reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.docker.scheduler import Fitting, SchedulingPolicy, Sharing
from trainmaster.dispatchers.section import read_section


class SchedulerOptions(BaseModel):
    """Determined's words."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Sharing = Sharing.PRIORITY
    fitting_policy: Fitting = Fitting.BEST
    preemption: bool = False
    default_priority: int = Field(default=42, ge=1, le=99)

    @property
    def policy(self) -> SchedulingPolicy:
        return SchedulingPolicy(self.type, self.fitting_policy, self.preemption)


class PoolOptions(BaseModel):
    """One pool. Agents name it when they join."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pool_name: str = "default"
    description: str = ""
    scheduler: SchedulerOptions | None = None
    max_aux_containers_per_agent: int = Field(default=100, ge=0)
    slot_type: SlotType = SlotType.CPU  # of a pool that no agent has joined yet


class DockerOptions(BaseModel):
    """Options of all agents. Times are seconds."""

    # The section also holds the master's own keys; what may stand in it is checked where the file is read.
    model_config = ConfigDict(frozen=True, extra="ignore")

    resource_pools: tuple[PoolOptions, ...] = ()
    scheduler: SchedulerOptions = SchedulerOptions()
    agent_token_file: str | None = None
    network_mode: str = "host"
    python: str = "python3"
    poll_interval: float = Field(default=1.0, gt=0)
    cancel_grace: float = Field(default=30.0, ge=0, description="between SIGTERM and SIGKILL")
    preemption_grace: float = Field(default=600.0, ge=0, description="between SIGUSR2 and SIGTERM")
    agent_timeout: float = Field(default=60.0, gt=0, description="of silence, after which an agent counts as lost")
    agent_reattach: float = Field(default=300.0, ge=0, description="after which a lost agent's jobs are given up")

    @model_validator(mode="after")
    def _distinct(self) -> DockerOptions:
        names = [pool.pool_name for pool in self.resource_pools]
        if len(set(names)) < len(names):
            raise ValueError("two pools of resource_pools have the same pool_name")
        return self

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> DockerOptions:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        return read_section(cls, options, "docker")

    @property
    def pools(self) -> tuple[PoolOptions, ...]:
        """The first one takes what names none."""
        return self.resource_pools or (PoolOptions(),)

    def pool(self, name: str) -> PoolOptions | None:
        """The pool called `name`; the first one for an empty name."""
        return next((pool for pool in self.pools if pool.pool_name == (name or self.pools[0].pool_name)), None)

    def scheduler_of(self, pool: PoolOptions) -> SchedulerOptions:
        return pool.scheduler or self.scheduler
