"""Agents of clusters that have them: their reports, their orders, and administrators' actions on them."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from trainmaster.dispatchers.base import DispatcherError, Rejected
from trainmaster.dispatchers.contract.agents import (
    AgentHub,
    AgentReport,
    AgentView,
    AlreadyEnrolled,
    Displaced,
    NotLeading,
    Orders,
    SlotView,
    UnknownAgent,
    WrongKey,
    agent_hub,
)
from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.clusters import node_list
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.clusters.node_list import NodeShown
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import (
    Conflict,
    Invalid,
    NotFound,
    NotServed,
    ServiceError,
    Unauthenticated,
    Unavailable,
)
from trainmaster.master.services.resources.job_queue import QueueRank

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentCluster:
    """A cluster with agents."""

    cluster: Cluster
    hub: AgentHub

    @property
    def inbox(self) -> Path:
        """The folder for files from agents until they are read."""
        return self.cluster.job_root


@dataclass(frozen=True)
class SlotShown:
    """A slot with the job that runs on it."""

    slot: SlotView
    allocation_id: str


@dataclass(frozen=True)
class AgentShown:
    agent: AgentView
    registered_at: dt.datetime
    slots: Sequence[SlotShown]


class Agents(BoundService):
    """Agents, and administrators' actions on them."""

    def agent_clusters(self) -> list[AgentCluster]:
        """All clusters with agents."""
        return [AgentCluster(cluster, hub) for cluster in self._clusters if (hub := agent_hub(cluster.dispatcher))]

    def admit(self, agent_id: str, secret: str) -> AgentCluster:
        """Authenticate an agent by its secret; return its cluster. Raises Unauthenticated, NotFound."""
        for agent_cluster in self._agent_clusters():
            if secret and agent_cluster.hub.accepts(agent_id, secret):
                return agent_cluster
        raise Unauthenticated(f"This is not the secret of an agent {agent_id}: it never enrolled here, or was revoked.")

    def enrol(self, agent_id: str, key: str) -> str:
        """Enrol a new agent; returns its secret. Raises Unauthenticated for a wrong key, Conflict for a name that is
        taken, Unavailable."""
        refusal = WrongKey("There is no key.")
        for agent_cluster in self._agent_clusters():
            try:
                with _translated():
                    return agent_cluster.hub.enrol(agent_id, key)
            except WrongKey as error:
                refusal = error
        raise Unauthenticated(str(refusal))

    def revoke(self, caller: Caller, agent_id: str) -> None:
        """Revoke an agent's secret, as when its host was broken into. Its jobs count as lost when it stays away.
        Raises Forbidden, NotFound, Unavailable."""
        caller.require(Permission.UPDATE_AGENTS)
        refusal = f"There is no agent {agent_id!r} that is enrolled."
        for agent_cluster in self._agent_clusters():
            try:
                agent_cluster.hub.revoke(agent_id)
            except Rejected:
                continue
            except DispatcherError as error:
                raise Unavailable(str(error)) from None
            log.info("%s revoked the agent %s", caller.username, agent_id)
            return
        raise NotFound(refusal)

    def _agent_clusters(self) -> list[AgentCluster]:
        clusters = self.agent_clusters()
        if not clusters:
            raise NotFound("This master has no cluster with agents: resource_manager.type must be agent for that.")
        return clusters

    def show(self) -> list[AgentShown]:
        """All agents by name."""
        views = sorted(
            (view for agent_cluster in self.agent_clusters() for view in agent_cluster.hub.agents()),
            key=lambda view: view.id,
        )
        tokens = {slot.token for view in views for slot in view.slots if slot.token}
        allocations: dict[str, str] = {}
        if tokens:
            with self._store.transaction() as session:
                query = select(Allocation.token, Allocation.id).where(Allocation.token.in_(tokens))
                allocations = {row.token: row.id for row in session.execute(query)}
        return [
            AgentShown(
                view,
                from_epoch(view.registered_at),
                [SlotShown(slot, allocations.get(slot.token, slot.token)) for slot in view.slots],
            )
            for view in views
        ]

    def containers(self) -> dict[str, dict[str, str]]:
        """Return the containers of jobs on agents: by the job's token, the id of its container on each agent, as
        `SlotView` and lists of slots name it. A container that does not run yet goes by the job's id."""
        by_agent: dict[str, dict[str, str]] = {}
        for agent_cluster in self.agent_clusters():
            for view in agent_cluster.hub.agents():
                for slot in view.slots:
                    if slot.token:
                        by_agent.setdefault(slot.token, {})[view.id] = slot.job_id
                for container in view.containers:
                    by_agent.setdefault(container.token, {})[view.id] = container.container_id or container.job_id
        return by_agent

    def show_one(self, agent_id: str) -> AgentShown | NodeShown:
        """Return an agent, or a node of a scheduler. Raises NotFound."""
        for shown in self.show():
            if shown.agent.id == agent_id:
                return shown
        if (node := node_list.find(node_list.show(self._clusters), agent_id)) is not None:
            return node
        raise NotFound(f"There is no agent {agent_id!r}; `det agent list` shows those there are.")

    def queue_ranks(self) -> dict[str, QueueRank]:
        """Positions of experiments and tasks in the pools that the master schedules itself, running ones first. Empty
        while another master leads, which alone has them."""
        ranks: dict[str, QueueRank] = {}
        for agent_cluster in self.agent_clusters():
            for policy in agent_cluster.hub.policies():
                try:
                    entries = agent_cluster.hub.queue(policy.pool)
                except NotLeading:
                    continue
                for entry in entries:
                    if entry.group:
                        ranks.setdefault(entry.group, QueueRank(len(ranks), entry.priority, entry.weight))
        return ranks

    def enable(self, caller: Caller, agent_id: str, slot: int | None = None) -> None:
        """Raise Forbidden, NotFound, Unavailable."""
        hub = self._hub_of(caller, agent_id)
        with _translated():
            hub.enable(agent_id, slot)

    def disable(self, caller: Caller, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """Raise Forbidden, NotFound, Unavailable."""
        hub = self._hub_of(caller, agent_id)
        with _translated():
            hub.disable(agent_id, slot, drain=drain)

    def _hub_of(self, caller: Caller, agent_id: str) -> AgentHub:
        caller.require(Permission.UPDATE_AGENTS)
        for agent_cluster in self.agent_clusters():
            if any(view.id == agent_id for view in agent_cluster.hub.agents()):
                return agent_cluster.hub
        if (node := node_list.find(node_list.show(self._clusters), agent_id)) is not None:
            raise NotServed(
                f"{agent_id} is a node of {node.kind} ({', '.join(node.pools)}): which of its nodes take jobs is the "
                "scheduler's to say, not the master's. Only agents are enabled and disabled here."
            )
        raise NotFound(f"There is no agent {agent_id!r}; `det agent list` shows those there are.")


def sync(agent_cluster: AgentCluster, agent_id: str, report: AgentReport) -> Orders:
    """Take in an agent's report; return its orders. Raises Conflict, Invalid, Unavailable."""
    with _translated():
        return agent_cluster.hub.sync(agent_id, report)


def orders(agent_cluster: AgentCluster, agent_id: str) -> Orders:
    """Raise NotFound, Unavailable."""
    with _translated():
        return agent_cluster.hub.orders(agent_id)


@contextmanager
def listening(agent_cluster: AgentCluster, agent_id: str, changed: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `changed` is called from some thread whenever the agent's orders may have changed."""
    undo = agent_cluster.hub.subscribe(agent_id, changed)
    try:
        yield
    finally:
        undo()


def job_files(agent_cluster: AgentCluster, agent_id: str, token: str, without: Collection[str] = ()) -> Iterator[bytes]:
    """Raise Invalid, Unavailable."""
    with _translated():
        return agent_cluster.hub.job_files(agent_id, token, without)


def take_remains(agent_cluster: AgentCluster, agent_id: str, token: str, node_rank: int, archive: Path) -> None:
    """Raise Invalid, Unavailable."""
    with _translated():
        agent_cluster.hub.take_remains(agent_id, token, node_rank, archive)


@contextmanager
def _translated() -> Iterator[None]:
    """Translate a hub's errors into those of services."""
    try:
        yield
    except WrongKey:  # another cluster's agents may enrol with it
        raise
    except DispatcherError as error:
        kinds: dict[type[DispatcherError], type[ServiceError]] = {
            NotLeading: Unavailable,
            AlreadyEnrolled: Conflict,
            Displaced: Conflict,
            UnknownAgent: NotFound,
            Rejected: Invalid,
        }
        raise kinds.get(type(error), Unavailable)(str(error)) from None
