"""State of a cluster's agents: their last reports, and what an administrator has set for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from trainmaster.agent_protocol.messages import AgentReport, ContainerReport, SlotFact
from trainmaster.dispatchers.base import Rejected, SlotType, Transient
from trainmaster.dispatchers.docker.job_record import Values, write_whole
from trainmaster.dispatchers.hub import AgentView, Displaced, SlotView, UnknownAgent

log = logging.getLogger(__name__)

FILE = ".agents.json"


class AgentSettings(Values):
    """State of one agent that is stored on disk."""

    id: str
    pool: str
    hostname: str = ""
    registered_at: float = 0.0
    slots: tuple[SlotFact, ...] = ()
    enabled: bool = True
    draining: bool = False
    disabled_slots: tuple[int, ...] = ()
    draining_slots: tuple[int, ...] = ()

    @property
    def marked(self) -> bool:
        """Whether an administrator has disabled the agent, or one of its slots."""
        return bool(not self.enabled or self.draining or self.disabled_slots)


class _File(Values):
    agents: tuple[AgentSettings, ...] = ()


@dataclass
class FleetAgent:
    """One agent. `used`: slot -> token of the job that holds it."""

    standing: AgentSettings
    last_seen: float
    instance: str = ""
    former: set[str] = field(default_factory=set)  # instances that another one has replaced
    version: str = ""
    addresses: tuple[str, ...] = ()
    leaving: bool = False
    problem: str = ""
    containers: dict[str, ContainerReport] = field(default_factory=dict)
    used: dict[int, str] = field(default_factory=dict)
    here: set[str] = field(default_factory=set)  # tokens with a part on this agent that has not ended
    lost: bool = False
    listeners: set[Callable[[], None]] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.standing.id

    @property
    def open(self) -> bool:
        """Whether the agent may get new jobs."""
        standing = self.standing
        return standing.enabled and not (standing.draining or self.leaving or self.lost or self.problem)

    @property
    def usable(self) -> list[int]:
        """The slots that are free and not disabled."""
        disabled = self.standing.disabled_slots
        return [slot.id for slot in self.standing.slots if slot.id not in disabled and slot.id not in self.used]

    @property
    def slot_type(self) -> SlotType | None:
        return self.standing.slots[0].type if self.standing.slots else None

    def wake(self) -> None:
        """Notify subscribers that the agent's orders may have changed."""
        for listener in tuple(self.listeners):
            listener()

    def view(self, job_ids: Callable[[str], str]) -> AgentView:
        standing = self.standing
        slots = []
        for fact in standing.slots:
            token = self.used.get(fact.id, "")
            slots.append(
                SlotView(
                    fact=fact,
                    enabled=standing.enabled and fact.id not in standing.disabled_slots,
                    draining=standing.draining or self.leaving or fact.id in standing.draining_slots,
                    token=token,
                    job_id=job_ids(token) if token else "",
                )
            )
        return AgentView(
            id=standing.id,
            pool=standing.pool,
            hostname=standing.hostname,
            version=self.version,
            addresses=self.addresses,
            registered_at=standing.registered_at,
            last_seen=self.last_seen,
            up=not self.lost,
            enabled=standing.enabled,
            draining=standing.draining or self.leaving,
            problem=self.problem,
            slots=slots,
            containers=[self.containers[token] for token in sorted(self.containers)],
        )


class Fleet:
    """All agents that have joined. Not thread-safe: callers hold the reconciler's lock."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self.agents: dict[str, FleetAgent] = {}

    def load(self, now: float) -> None:
        """Load what an earlier master stored. All agents count as seen now, because no master was there for their
        reports."""
        try:
            known = _File.model_validate_json(self._path.read_bytes()).agents
        except FileNotFoundError:
            known = ()
        except (OSError, ValidationError) as error:
            log.warning("%s cannot be read; agents will register again: %s", self._path, error)
            known = ()
        self.agents = {standing.id: FleetAgent(standing, now) for standing in known}

    def save(self) -> None:
        standings = tuple(agent.standing for _, agent in sorted(self.agents.items()))
        try:
            write_whole(self._path, _File(agents=standings).model_dump_json(exclude_defaults=True))
        except Transient as error:
            log.warning("the list of agents is kept in memory only: %s", error)

    def get(self, agent_id: str) -> FleetAgent:
        """Raises UnknownAgent."""
        found = self.agents.get(agent_id)
        if found is None:
            close = ", ".join(sorted(self.agents)) or "none has joined yet"
            raise UnknownAgent(f"There is no agent {agent_id!r}; there are: {close}.")
        return found

    def greet(self, agent_id: str, report: AgentReport, pool: str, now: float, *, timeout: float) -> FleetAgent:
        """Return the agent that sent `report`; a new agent joins. Raises Displaced, Rejected."""
        agent = self.agents.get(agent_id)
        if agent is None:
            agent = self.agents[agent_id] = FleetAgent(AgentSettings(id=agent_id, pool=pool, registered_at=now), now)
            log.info("agent %s has joined pool %s from %s", agent_id, pool, report.hostname)
        if report.instance in agent.former:
            raise Displaced(f"Another process is the agent {agent_id} now; this one leaves.")
        if agent.instance != report.instance:
            elsewhere = agent.standing.hostname not in ("", report.hostname)
            if elsewhere and agent.instance and now - agent.last_seen < timeout:
                raise Displaced(
                    f"The agent {agent_id} lives on {agent.standing.hostname}; give this one another name with "
                    "--agent-id."
                )
            if agent.instance:
                agent.former.add(agent.instance)
            agent.instance = report.instance
        if len({slot.type for slot in report.slots}) > 1 or len({slot.id for slot in report.slots}) < len(report.slots):
            raise Rejected(f"The slots of agent {agent_id} are of several types, or two of them have the same number.")
        standing = agent.standing.model_copy(update={"pool": pool, "hostname": report.hostname, "slots": report.slots})
        if standing != agent.standing:
            agent.standing = standing
            self.save()
        agent.last_seen, agent.lost = now, False
        agent.version, agent.addresses = report.version, report.addresses
        agent.leaving, agent.problem = report.leaving, report.problem
        return agent
