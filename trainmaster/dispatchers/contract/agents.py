"""Contract of dispatchers that run jobs through our agents: what the API needs beside `base.Dispatcher`.

Services know the agents' protocol by what this module exports of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from trainmaster.agent_protocol.messages import FIRST_ORDINARY_ID as FIRST_ORDINARY_ID
from trainmaster.agent_protocol.messages import REGISTRY_LOGIN as REGISTRY_LOGIN
from trainmaster.agent_protocol.messages import AgentReport as AgentReport
from trainmaster.agent_protocol.messages import ContainerReport, SlotFact
from trainmaster.agent_protocol.messages import Orders as Orders
from trainmaster.dispatchers.contract.dispatcher import Dispatcher
from trainmaster.dispatchers.contract.errors import DispatcherError

INBOX_PREFIX = ".remains-"  # of uploads that are being received, in the folder of the jobs


class NotLeading(DispatcherError):
    """This master is not the leader: another one is, or this one will be soon."""


class UnknownAgent(DispatcherError):
    """No agent has this name."""


class WrongKey(DispatcherError):
    """The enrolment key is wrong."""


class AlreadyEnrolled(DispatcherError):
    """An agent of this name is enrolled already, and the caller does not have its secret."""


class Displaced(DispatcherError):
    """Another process has taken over as this agent; the caller must end."""


@dataclass(frozen=True)
class SlotView:
    """A slot, as users see it."""

    fact: SlotFact
    enabled: bool
    draining: bool
    token: str = ""  # of the job that holds it
    job_id: str = ""


@dataclass(frozen=True)
class AgentView:
    """An agent, as users see it. Times are epoch seconds."""

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
    """Scheduling policy of a pool, in Determined's terms."""

    pool: str
    scheduler: str  # "priority", "fair_share"
    fitting: str  # "best", "worst"
    preemption: bool
    default_priority: int
    aux_capacity_per_agent: int
    aux_running: int


@dataclass(frozen=True)
class QueueEntry:
    """One job of a pool's queue."""

    token: str
    group: str
    pool: str
    priority: int
    weight: float
    running: bool


class AgentHub(Protocol):
    """A dispatcher whose trait `agents` says that it runs jobs through agents of ours. Thread-safe; times are epoch
    seconds.

    Every method but `lead`, `follow`, `accepts`, `agents`, `policies` and `subscribe` raises NotLeading on a master
    that does not lead.
    """

    def lead(self) -> None:
        """Start scheduling: this master is the leader now."""

    def follow(self) -> None:
        """Stop scheduling: this master is no longer the leader. Jobs keep running."""

    def accepts(self, agent_id: str, secret: str) -> bool:
        """Whether `secret` is the agent's. Each agent has its own, which gives access to its own jobs only."""

    def enrol(self, agent_id: str, key: str) -> str:
        """Return a secret for a new agent that shows the enrolment key. Raises WrongKey, AlreadyEnrolled, Transient."""

    def revoke(self, agent_id: str) -> None:
        """Invalidate an agent's secret, and the key with which it enrolled. Raises Rejected, Transient."""

    def sync(self, agent_id: str, report: AgentReport) -> Orders:
        """Process an agent's report; return its orders. Raises Displaced, Rejected."""

    def orders(self, agent_id: str) -> Orders:
        """Return the agent's current orders. Raises UnknownAgent."""

    def subscribe(self, agent_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, from any thread, whenever the orders may have changed. Returns a function that ends it."""

    def job_files(self, agent_id: str, token: str, without: Collection[str] = ()) -> Iterator[bytes]:
        """Yield a tar of the job's staged files, for an agent that should run it; `without` those that it has from
        other jobs (`ContainerOrder.shared`). Raises Rejected."""

    def take_remains(self, agent_id: str, token: str, node_rank: int, archive: Path) -> None:
        """Store the files that a container left, from a tar. Raises Rejected for one with unexpected content."""

    def agents(self) -> Sequence[AgentView]:
        """List the agents that have joined, except those lost for long."""

    def enable(self, agent_id: str, slot: int | None = None) -> None:
        """Let an agent, or one of its slots, accept jobs again. Raises UnknownAgent."""

    def disable(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """Stop placing jobs on an agent or a slot; with `drain` its jobs run to their end, else they are stopped at
        once. Raises UnknownAgent."""

    def policies(self) -> Sequence[PoolPolicy]:
        """Return the scheduling policy of each pool."""

    def queue(self, pool: str) -> Sequence[QueueEntry]:
        """List the jobs of a pool in the order in which they are served, running ones first."""

    def reprioritise(self, group: str, *, priority: int | None = None, weight: float | None = None) -> None:
        """Change priority or weight of a group's live jobs; None keeps it."""

    def move(self, group: str, anchor: str, *, ahead: bool) -> None:
        """Serve a group's jobs just before (`ahead`) or after those of the group `anchor`, with its priority. Raises
        Rejected when one of them has no live job, or they are in different pools."""


def agent_hub(dispatcher: Dispatcher) -> AgentHub | None:
    """Return the dispatcher as what serves its agents; None when it has none."""
    return cast(AgentHub, dispatcher) if dispatcher.traits.agents else None
