"""What a dispatcher with agents of its own offers to the API, beside the contract of every dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainmaster.agent_protocol.messages import AgentReport, ContainerReport, Orders, SlotFact
from trainmaster.dispatchers.base import DispatcherError

INBOX_PREFIX = ".remains-"  # of files in the folder of the jobs that are being taken in


class NotLeading(DispatcherError):
    """This master does not schedule; another one does, or this one will soon."""


class UnknownAgent(DispatcherError):
    """There is no agent of that name."""


class WrongKey(DispatcherError):
    """Agents do not enrol with this key."""


class AlreadyEnrolled(DispatcherError):
    """An agent of this name has a secret; the one that asks does not have it."""


class Displaced(DispatcherError):
    """Another process is the agent now; this one must leave."""


@dataclass(frozen=True)
class SlotView:
    """A slot as people see it."""

    fact: SlotFact
    enabled: bool
    draining: bool
    token: str = ""  # of the job that holds it
    job_id: str = ""


@dataclass(frozen=True)
class AgentView:
    """An agent as people see it. Times are epoch seconds."""

    id: str
    pool: str
    hostname: str
    version: str
    addresses: Sequence[str]
    registered_at: float
    last_seen: float
    up: bool
    enabled: bool
    draining: bool
    problem: str
    slots: Sequence[SlotView]
    containers: Sequence[ContainerReport]


@dataclass(frozen=True)
class PoolPolicy:
    """How a pool is scheduled, in Determined's words."""

    pool: str
    scheduler: str  # "priority", "fair_share"
    fitting: str  # "best", "worst"
    preemption: bool
    default_priority: int
    aux_capacity_per_agent: int
    aux_running: int


@dataclass(frozen=True)
class QueueEntry:
    """One job in the order in which it is served."""

    token: str
    group: str
    pool: str
    priority: int
    weight: float
    running: bool


@runtime_checkable
class AgentHub(Protocol):
    """A dispatcher that runs jobs through agents of ours. Thread-safe; times are epoch seconds.

    Every method but `lead`, `follow`, `accepts`, `agents`, `policies` and `subscribe` raises NotLeading on a master
    that does not lead.
    """

    def lead(self) -> None:
        """Begin to schedule: this master leads now."""

    def follow(self) -> None:
        """Stop scheduling: another master leads, or none. Jobs go on."""

    def accepts(self, agent_id: str, secret: str) -> bool:
        """Whether `secret` is that of the agent. Each agent has its own, and speaks and hears of its own jobs only."""

    def enrol(self, agent_id: str, key: str) -> str:
        """A new agent's secret, for the key that the administrator gave it. Raises WrongKey, AlreadyEnrolled,
        Transient."""

    def revoke(self, agent_id: str) -> None:
        """Make an agent's secret worthless, and the key by which it enrolled. Raises Rejected, Transient."""

    def sync(self, agent_id: str, report: AgentReport) -> Orders:
        """Take in what an agent says; what it should have. Raises Displaced, Rejected."""

    def orders(self, agent_id: str) -> Orders:
        """What the agent should have now. Raises UnknownAgent."""

    def subscribe(self, agent_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, from any thread, whenever the orders may have changed; the answer undoes it."""

    def job_files(self, agent_id: str, token: str) -> Iterator[bytes]:
        """A tar of the job's staged files, for an agent that should run it. Raises Rejected."""

    def take_remains(self, agent_id: str, token: str, node_rank: int, archive: Path) -> None:
        """What a container left, as a tar. Raises Rejected for one that holds what it should not."""

    def agents(self) -> Sequence[AgentView]:
        """All agents that have ever joined and were not lost for long."""

    def enable(self, agent_id: str, slot: int | None = None) -> None:
        """Let an agent, or one of its slots, take jobs again. Raises UnknownAgent."""

    def disable(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """Take no more jobs on an agent or a slot; those that run go on to their end with `drain`, else they are
        stopped at once. Raises UnknownAgent."""

    def policies(self) -> Sequence[PoolPolicy]:
        """How each pool is scheduled."""

    def queue(self, pool: str) -> Sequence[QueueEntry]:
        """The jobs of a pool in the order in which they are served, those that run first."""

    def reprioritise(self, group: str, *, priority: int | None = None, weight: float | None = None) -> None:
        """Change the live jobs of a group."""

    def move(self, group: str, anchor: str, *, ahead: bool) -> None:
        """Serve a group's jobs just before (`ahead`) or after those of the group `anchor`, with its priority. Raises
        Rejected when one of them has no live job, or they are in different pools."""
