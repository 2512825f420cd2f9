"""The `docker` resource manager's section of the master's configuration (`agent` in Determined's files)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainmaster.config.resource_managers import AgentPool, ClusterFacts, DispatcherOptions, PoolScheduler
from trainmaster.config.shapes import AbsolutePath, Line, wrong
from trainmaster.config.task_container import TaskContainerDefaults
from trainmaster.dispatchers.docker.scheduler import Fitting, SchedulingPolicy, Sharing
from trainmaster.dispatchers.sections import read_section


class DockerOptions(DispatcherOptions):
    """Options of a cluster of Docker hosts that run our agent. Times are seconds."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"no_default_resource_pools", "require_authentication", "client_ca", "agent_reconnect_wait"}
    )
    takes_pools: ClassVar[bool] = True

    container_run_type: Literal["docker"] = "docker"
    scheduler: PoolScheduler = PoolScheduler()
    """Scheduling of pools that configure none of their own."""
    resource_pools: list[AgentPool] = Field(default_factory=list)
    """The first pool gets agents that name no pool; without any there is one, called default."""
    agent_token_file: AbsolutePath | None = None
    """A file with the enrolment key of agents; without it, one is created in the folder of the jobs."""
    job_user: Line | None = None
    """The account given to the agents as --job-user, under its name on this machine: it owns checkpoints."""
    network_mode: Line = "host"
    """Network mode of containers. Trials on several hosts need host."""
    python: Line = "python3"
    """Python 3.8 or later in the images."""
    poll_interval: float = Field(default=1.0, gt=0)
    cancel_grace: float = Field(default=30.0, ge=0)
    """Seconds between SIGTERM and SIGKILL."""
    preemption_grace: float = Field(default=600.0, ge=0)
    """Seconds that a preempted job has to save its work."""
    agent_timeout: float = Field(default=60.0, gt=0)
    """Seconds without a report after which an agent counts as lost."""
    agent_reattach: float = Field(default=300.0, ge=0)
    """Further seconds after which the jobs of a lost agent are given up."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, data: Any) -> Any:
        return {**data, "type": "docker"} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _distinct_pools(self) -> Self:
        names = [pool.pool_name for pool in self.resource_pools]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise wrong(f"there is another pool called {name!r}", "resource_pools", i, "pool_name")
        return self

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> DockerOptions:
        """Check an administrator's section. Raises Rejected with one sentence that names the keys."""
        return read_section(cls, options, "docker")

    def settings(self) -> dict[str, Any]:
        # A pool's scheduler settings are merged with the manager's, so only the keys that were given may stay.
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)

    def facts(self) -> ClusterFacts:
        # An agent with --linked-users starts jobs as any ordinary account of its host.
        return ClusterFacts(
            runs_as_users=True, runs_as_master=False, job_user=self.job_user or None, account=self.job_user or None
        )

    def pool_names(self) -> Sequence[str]:
        return [pool.pool_name for pool in self.resource_pools]

    def pool_defaults(self, pool: str) -> TaskContainerDefaults | None:
        return next((own.task_container_defaults for own in self.resource_pools if own.pool_name == pool), None)

    def with_pools(self, pools: Sequence[AgentPool]) -> Self:
        given = self.model_dump(exclude_unset=True) | {"resource_pools": [*self.resource_pools, *pools]}
        return type(self).model_validate(given)

    @property
    def pools(self) -> Sequence[AgentPool]:
        """All pools; the first one gets jobs and agents that name none."""
        return self.resource_pools or [AgentPool(pool_name="default")]

    def pool(self, name: str) -> AgentPool | None:
        """Return the pool called `name`; the first one for an empty name."""
        return next((pool for pool in self.pools if pool.pool_name == (name or self.pools[0].pool_name)), None)

    def scheduler_of(self, pool: AgentPool) -> PoolScheduler:
        """Return a pool's scheduler settings: the manager's, with the pool's own keys over them."""
        own = pool.scheduler.model_dump(exclude_unset=True) if pool.scheduler else {}
        return self.scheduler.model_copy(update=own)

    def policy_of(self, pool: AgentPool) -> SchedulingPolicy:
        """Return a pool's scheduler settings as the scheduler's policy."""
        scheduler = self.scheduler_of(pool)
        return SchedulingPolicy(Sharing(scheduler.type), Fitting(scheduler.fitting_policy), scheduler.preemption)
