"""The `resource_manager` sections of the master configuration: what all have, and how a section finds its model.

Each dispatcher brings the model of its own section, a subclass of `DispatcherOptions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainmaster import plugins
from trainmaster.config.messages import in_words
from trainmaster.config.shapes import (
    AbsolutePath,
    Bytes,
    Line,
    Name,
    Natural,
    Port,
    Section,
    Segment,
    Whole,
    chosen,
    one_of,
    wrong,
)
from trainmaster.config.task_container import TaskContainerDefaults
from trainmaster.slots import SlotType

SlotTypeName = Annotated[SlotType, one_of(SlotType)]


@dataclass(frozen=True)
class ClusterFacts:
    """What the master must know of a cluster to run jobs on it, as its section says it."""

    here: bool = True  # job folders are on file systems of this machine
    runs_as_users: bool = False  # jobs run as the account that their owner is linked to
    runs_as_master: bool = True  # jobs of those who are linked to none run as the master's own account
    job_user: str | None = None  # account of jobs that name none, where it is not the master's own
    account: str | None = None  # by which one logs in to jobs that name none; None: the master's own
    shows_external: bool = False  # its snapshots hold other people's jobs
    project_source: str = ""  # the project in the scheduler's accounting: project, workspace, label, label:PREFIX
    walltime_grace: int = 120  # seconds before a time limit at which a trial is asked to leave
    orphaned_after: float = 0.0  # seconds without a sign of the master until a job ends; 0: it continues


@dataclass(frozen=True)
class HelperNeeds:
    """What a cluster needs of `trainmaster-helper`, which acts as the users there."""

    program: str  # where it is installed
    path: str  # PATH of the scheduler's commands
    commands: Mapping[str, str]  # full paths of those that are not on it
    environment: Mapping[str, str]


class DispatcherOptions(Section):
    """The keys of every `resource_manager` section. A dispatcher's `Options` inherits it and adds its own keys; the
    methods answer what the master asks of a section, and are overridden where a dispatcher's section says more."""

    superfluous: ClassVar[dict[str, str]] = {}
    """Keys that are read and do nothing here, each with what to know about it."""
    takes_pools: ClassVar[bool] = False
    """Whether pools that stand at the top level of the file, without a provider, can be given to it."""
    shared_folder: ClassVar[bool] = False
    """Whether nodes that this machine does not administer read the job folders, under the same path. Such a dispatcher
    starts nothing that it finds there by itself."""
    to_separate_users: ClassVar[str] = (
        "Let in only people who may read and change each other's work, or use a cluster that runs jobs as their users."
    )
    """What an administrator can do where all jobs run as the master's account."""

    type: str = ""
    """The name of the dispatcher."""
    cluster_name: Name = "default"
    """What the cluster is called in listings of pools; one name per manager."""
    container_run_type: Name = "none"
    """The name of a container runtime."""
    job_storage_root: AbsolutePath | None = None
    """The folder of the job folders; None: one below the master's data folder."""
    node_data: AbsolutePath | None = None
    """A folder on every node's own disk, where all accounts may make folders: for copies of experiments' `data`."""
    node_data_limit: Bytes | None = None
    """How much the copies of one account may take on a node."""
    master_host: Line | None = None
    """How jobs reach the master, where it is not how everybody does."""
    master_port: Port | None = None
    pool_prefix: Line = ""
    """What the names of its pools begin with. Without it, a pool that has the name of an earlier cluster's is called
    CLUSTER.NAME."""
    default_aux_resource_pool: Line | None = None
    """The pool of jobs without slots that name none."""
    default_compute_resource_pool: Line | None = None
    """The pool of jobs with slots that name none."""

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, data: Any) -> Any:
        """Read earlier names of the default pools where no new one is set, as Determined 0.38.1 does."""
        if not isinstance(data, dict):
            return data
        options = dict(data)
        for former, name in (("cpu", "aux"), ("gpu", "compute")):
            value = options.pop(f"default_{former}_resource_pool", None)
            if value and not options.get(f"default_{name}_resource_pool"):
                options[f"default_{name}_resource_pool"] = value
        return options

    def settings(self) -> dict[str, Any]:
        """Return the section as JSON values, with its defaults: what the dispatcher is given."""
        return self.model_dump(mode="json", exclude_none=True)

    def facts(self) -> ClusterFacts:
        """Return what the master must know to run jobs here."""
        return ClusterFacts()

    def image_folder(self) -> tuple[str, str | None] | None:
        """Return the folder of container images, and the program that makes them, where the section names these."""
        return None

    def helper_needs(self) -> HelperNeeds | None:
        """Return what the helper must know; None: the cluster has none."""
        return None

    def notes(self) -> Iterator[tuple[str, str]]:
        """Keys that change more than they seem to, each with a sentence."""
        return iter(())

    def pool_names(self) -> Sequence[str]:
        """Return the pools that the section names."""
        return ()

    def pool_defaults(self, pool: str) -> TaskContainerDefaults | None:
        """Return what it gives to every job of a pool."""
        del pool
        return None

    def pool_environment(self, pool: str) -> Mapping[str, str]:
        """Environment variables that it gives to every job of a pool."""
        del pool
        return {}

    def with_pools(self, pools: Sequence[AgentPool]) -> Self:
        """Return the same section with further pools. Only asked of sections with `takes_pools`, which override it."""
        del pools
        raise TypeError(f"a section of type {self.type} takes no pools")


class PoolScheduler(Section):
    """How a pool of hosts with agents is scheduled."""

    type: Literal["priority", "fair_share"] = "priority"
    fitting_policy: Literal["best", "worst"] = "best"
    """best packs jobs onto few hosts, worst spreads them."""
    preemption: bool = False
    """Whether a job may have others of lower priority leave."""
    default_priority: Annotated[Whole, Field(ge=1, le=99)] = 42
    """Of experiments that name none; 1 is served first."""


class AgentPool(Section):
    """A pool of hosts with agents; an agent names it when it joins."""

    superfluous: ClassVar[frozenset[str]] = frozenset(
        {"provider", "agent_reconnect_wait", "agent_reattach_enabled", "kubernetes_namespace", "max_slots"}
    )
    ignored: ClassVar[frozenset[str]] = superfluous

    pool_name: Segment
    description: Line = ""
    scheduler: PoolScheduler | None = None
    max_aux_containers_per_agent: Natural = 100
    """Jobs without slots that one host may run at once."""
    slot_type: SlotTypeName = SlotType.CPU
    """Of a pool that no agent has joined yet."""
    task_container_defaults: TaskContainerDefaults | None = None


_SYNONYMS = {"agent": "docker"}  # Determined's word for hosts with agents


def _options_of(section: Any) -> type[DispatcherOptions]:
    """Return the model of the dispatcher that a section names."""
    if not isinstance(section, dict):
        raise wrong(f"a mapping (key: value) is wanted, found {in_words(section)}")
    kind = section.get("type")
    if not isinstance(kind, str):
        names = ", ".join(sorted(plugins.installed(plugins.DISPATCHERS)))
        raise wrong(f"is required: the name of an installed dispatcher ({names})", "type")
    try:
        options: type[DispatcherOptions] = plugins.load(plugins.DISPATCHERS, _SYNONYMS.get(kind, kind)).Options
    except plugins.PluginError as error:
        raise wrong(error.after_colon, "type") from None
    return options


ResourceManager = chosen(DispatcherOptions, _options_of)


def default_manager() -> DispatcherOptions:
    """Return the section of a master whose file names no dispatcher: this machine."""
    section = {"type": "local"}
    return _options_of(section).model_validate(section)
