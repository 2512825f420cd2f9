"""State of a cluster's agents: their last reports, and what an administrator has set for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from trainmaster.agent_protocol.messages import AgentReport, ContainerReport, SlotFact
from trainmaster.dispatchers.base import Rejected, SlotType, Transient
from trainmaster.dispatchers.contract.agents import AgentView, Displaced, SlotView, UnknownAgent
from trainmaster.dispatchers.docker.job_record import Values, write_whole

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

    settings: AgentSettings
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
        return self.settings.id

    @property
    def open(self) -> bool:
        """Whether the agent may get new jobs."""
        settings = self.settings
        return settings.enabled and not (settings.draining or self.leaving or self.lost or self.problem)

    @property
    def usable(self) -> list[int]:
        """The slots that are free and not disabled."""
        disabled = self.settings.disabled_slots
        return [slot.id for slot in self.settings.slots if slot.id not in disabled and slot.id not in self.used]

    @property
    def slot_type(self) -> SlotType | None:
        return self.settings.slots[0].type if self.settings.slots else None

    def wake(self) -> None:
        """Notify subscribers that the agent's orders may have changed."""
        for listener in tuple(self.listeners):
            listener()

    def view(self, job_ids: Callable[[str], str]) -> AgentView:
        settings = self.settings
        slots = []
        for fact in settings.slots:
            token = self.used.get(fact.id, "")
            slots.append(
                SlotView(
                    fact=fact,
                    enabled=settings.enabled and fact.id not in settings.disabled_slots,
                    draining=settings.draining or self.leaving or fact.id in settings.draining_slots,
                    token=token,
                    job_id=job_ids(token) if token else "",
                )
            )
        return AgentView(
            id=settings.id,
            pool=settings.pool,
            hostname=settings.hostname,
            version=self.version,
            addresses=self.addresses,
            registered_at=settings.registered_at,
            last_seen=self.last_seen,
            up=not self.lost,
            enabled=settings.enabled,
            draining=settings.draining or self.leaving,
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
        self.agents = {settings.id: FleetAgent(settings, now) for settings in known}

    def save(self) -> None:
        all_settings = tuple(agent.settings for _, agent in sorted(self.agents.items()))
        try:
            write_whole(self._path, _File(agents=all_settings).model_dump_json(exclude_defaults=True))
        except Transient as error:
            log.warning("the list of agents is kept in memory only: %s", error)

    def get(self, agent_id: str) -> FleetAgent:
        """Return an agent. Raises UnknownAgent."""
        agent = self.agents.get(agent_id)
        if agent is None:
            close = ", ".join(sorted(self.agents)) or "none has joined yet"
            raise UnknownAgent(f"There is no agent {agent_id!r}; there are: {close}.")
        return agent

    def greet(self, agent_id: str, report: AgentReport, pool: str, now: float, *, timeout: float) -> FleetAgent:
        """Return the agent that sent `report`; a new agent joins. Raises Displaced, Rejected."""
        agent = self.agents.get(agent_id)
        if agent is None:
            agent = self.agents[agent_id] = FleetAgent(AgentSettings(id=agent_id, pool=pool, registered_at=now), now)
            log.info("agent %s has joined pool %s from %s", agent_id, pool, report.hostname)
        if report.instance in agent.former:
            raise Displaced(f"Another process is the agent {agent_id} now; this one leaves.")
        if agent.instance != report.instance:
            elsewhere = agent.settings.hostname not in ("", report.hostname)
            if elsewhere and agent.instance and now - agent.last_seen < timeout:
                raise Displaced(
                    f"The agent {agent_id} lives on {agent.settings.hostname}; give this one another name with "
                    "--agent-id."
                )
            if agent.instance:
                agent.former.add(agent.instance)
            agent.instance = report.instance
        if len({slot.type for slot in report.slots}) > 1 or len({slot.id for slot in report.slots}) < len(report.slots):
            raise Rejected(f"The slots of agent {agent_id} are of several types, or two of them have the same number.")
        settings = agent.settings.model_copy(update={"pool": pool, "hostname": report.hostname, "slots": report.slots})
        if settings != agent.settings:
            agent.settings = settings
            self.save()
        agent.last_seen, agent.lost = now, False
        agent.version, agent.addresses = report.version, report.addresses
        agent.leaving, agent.problem = report.leaving, report.problem
        return agent
