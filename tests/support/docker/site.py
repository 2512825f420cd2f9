"""A hub, agents on a real Docker daemon, and a dispatcher for them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tests.support.docker.engine import IMAGE, DockerEngine
from tests.support.docker.hosts import AgentProcess, HubServer
from trainmaster.dispatchers.base import ContainerSpec, JobRef, JobSpec, Observation, Setup, SlotType
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.docker import DockerDispatcher

T = TypeVar("T")
Submit = Callable[..., JobSpec]
PATIENCE = 60.0  # seconds
OPTIONS: dict[str, Any] = {"cancel_grace": 1.0, "poll_interval": 0.2, "agent_timeout": 24.0}


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
        agent = AgentProcess(
            self.engine, self.folder, self.server.url, token, name, slots=slots, **{"linked_users": True, **more}
        )
        self.agents.append(agent.start())
        eventually(lambda: any(view.id == name and view.up for view in self.dispatcher.agents()), f"agent {name}")
        return agent

    def take_over(self, dispatcher: DockerDispatcher) -> None:
        """Have this one lead, and the address speak for it."""
        dispatcher.lead()
        self.server.serve(dispatcher)

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.dispatcher.close)
            stack.callback(self.server.stop)
            for agent in self.agents:
                stack.callback(agent.stop)
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


@contextmanager
def submitting(site: Site) -> Iterator[Submit]:
    """Makes jobs; in the end all are cancelled and forgotten."""
    made: list[str] = []

    def submit(program: str = programs.WAITS, **changes: object) -> JobSpec:
        spec = JobSpec(
            token=f"{site.setup.prefix}{secrets.token_hex(6)}",
            allocation_id="1.1.1",
            pool="default",
            slots=1,
            slot_type=SlotType.CPU,
            container=ContainerSpec("docker", IMAGE),
            files=programs.runtime(program),
        )
        spec = replace(spec, **changes)  # type: ignore[arg-type]
        site.dispatcher.submit(spec)
        made.append(spec.token)
        return spec

    yield submit
    for token in made:
        site.dispatcher.cancel([JobRef(token, "")])
    eventually(lambda: all(seen(site, token).state.terminal for token in made), "the end of all jobs")
    for token in made:
        site.dispatcher.forget(token)


def seen(site: Site, token: str) -> Observation:
    return next(job for job in site.dispatcher.observe().jobs if job.token == token)


def ended(site: Site, spec: JobSpec) -> Observation:
    return eventually(lambda: job if (job := seen(site, spec.token)).state.terminal else None, f"the end of {spec}")  # type: ignore[return-value]
