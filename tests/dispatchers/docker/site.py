"""A hub, an agent on a real Docker daemon, and a dispatcher between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.docker.engine import DockerEngine
from tests.docker.hosts import AgentProcess, HubServer
from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.docker import DockerDispatcher

T = TypeVar("T")
PATIENCE = 30.0  # seconds
OPTIONS: dict[str, Any] = {"cancel_grace": 1.0, "poll_interval": 0.2, "agent_timeout": 8.0}


def eventually(look: Callable[[], T], what: str, deadline: float = PATIENCE) -> T:
    """What `look` finds once that is true."""
    until = time.monotonic() + deadline
    while not (found := look()):
        assert time.monotonic() < until, f"waited {deadline:.0f} s in vain for {what}"
        time.sleep(0.02)
    return found


class Site:
    """One cluster of Docker hosts, all of them on this machine."""

    def __init__(self, engine: DockerEngine, folder: Path, **options: Any) -> None:
        self.engine, self.folder = engine, folder
        self.setup = Setup(name="hosts", prefix="conf-", job_root=folder / "master", options={**OPTIONS, **options})
        self.dispatcher = DockerDispatcher(self.setup)
        self.server = HubServer(self.dispatcher, self.setup.job_root).start()
        self.agents: list[AgentProcess] = []
        self.dispatcher.lead()

    @property
    def agent(self) -> AgentProcess:
        return self.agents[0]

    def add_agent(self, name: str = "host1", *, slots: int = 4, **more: Any) -> AgentProcess:
        """One more host, which has joined when this returns."""
        token = self.setup.job_root / "agent-token"
        agent = AgentProcess(self.engine, self.folder, self.server.url, token, name, slots=slots, **more)
        self.agents.append(agent.start())
        eventually(lambda: any(view.id == name and view.up for view in self.dispatcher.agents()), f"agent {name}")
        return agent

    def take_over(self, dispatcher: DockerDispatcher) -> None:
        """Have this one lead, and the address speak for it."""
        dispatcher.lead()
        self.server.serve(dispatcher)

    def close(self) -> None:
        for agent in self.agents:
            agent.stop()
        self.server.stop()
        self.dispatcher.close()
        for agent in self.agents:
            assert agent.complaints() == []


@contextmanager
def running_site(engine: DockerEngine, folder: Path, **options: Any) -> Iterator[Site]:
    """With nothing left behind in the end."""
    site = Site(engine, folder, **options)
    try:
        yield site
        eventually(
            lambda: not engine.containers() and not any(any((a.data / "jobs").iterdir()) for a in site.agents),
            "the removal of what forgotten jobs left on their hosts",
        )
    finally:
        site.close()
