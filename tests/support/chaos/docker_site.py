"""A master and three Docker hosts with our agents, all on this machine. Each agent has its own way to the master."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.chaos.connections import Proxy
from tests.support.chaos.site import USER, Site, folder_of_a_run, small_disk, words_of
from tests.support.docker.engine import IMAGE, DockerEngine
from tests.support.docker.hosts import AgentProcess

HOSTS = ("host1", "host2", "host3")
SLOTS = 3  # of each
CONFIG = """
resource_manager:
  type: agent
  cluster_name: hosts
  poll_interval: 0.3
  cancel_grace: 5
  job_user: {user}
  agent_timeout: 4
  agent_reattach: 12
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
task_container_defaults:
  image: {image}
"""


class DockerSite(Site):
    where = "docker"

    def __init__(self, folder: Path, engine: DockerEngine, checkpoints: Path) -> None:
        self.engine, self.checkpoints = engine, checkpoints
        super().__init__(folder, masters=1)
        token = self.masters[0].data / "jobs" / "hosts" / "agent-token"
        self.ways = {name: Proxy([self.masters[0].port]).start() for name in HOSTS}
        self.agents = {
            name: AgentProcess(engine, folder / "hosts", way.url, token, name, slots=SLOTS)
            for name, way in self.ways.items()
        }

    @property
    def proxies(self) -> list[Proxy]:
        return [self.proxy, *self.ways.values()]

    def configuration(self) -> str:
        return CONFIG.format(user=USER, checkpoints=self.checkpoints, image=IMAGE)

    def keys(self) -> dict[str, Any]:
        return {"resources": {"slots_per_trial": 1}, **self.stepping_clock(bound=True)}

    def start(self) -> None:
        super().start()
        for agent in self.agents.values():
            agent.start()

    def close(self) -> None:
        super().close()
        for name, agent in self.agents.items():
            agent.stop()
            self.ways[name].stop()
        self.engine.remove_everything()

    def start_agent(self, agent: AgentProcess) -> None:
        """As a service manager does: until it stays up."""

        def started() -> bool:
            try:
                agent.start()
            except AssertionError:  # its master is away, or its disk is full
                return False
            return True

        self.eventually(started, f"agent {agent.name} to start", every=1.0)

    def running(self) -> list[str]:
        """Names of the containers that run."""
        return [name for name in self.engine.containers() if self.engine.is_running(name)]

    def calm(self) -> None:
        """Nothing: each fault starts what it has ended."""

    def leftovers(self) -> list[str]:
        found = []
        if containers := self.engine.containers():
            found.append(f"containers: {words_of(containers)}")
        for agent in self.agents.values():
            if folders := sorted(path.name for path in (agent.data / "jobs").iterdir()):
                found.append(f"job folders of {agent.name}: {words_of(folders)}")
        if left := self.processes():
            found.append(f"processes: {words_of([' '.join(process.command)[-80:] for process in left])}")
        return found

    def complaints(self) -> list[str]:
        told = [f"{agent.name}'s log: {line}" for agent in self.agents.values() for line in agent.complaints()]
        return [*super().complaints(), *told]


@contextmanager
def docker_site(engine: DockerEngine) -> Iterator[DockerSite]:
    with folder_of_a_run() as folder, small_disk(folder / "checkpoints", 64) as checkpoints:
        (folder / "hosts").mkdir(mode=0o711)
        for name in HOSTS:
            (folder / "hosts" / name).mkdir()
        site = DockerSite(folder, engine, checkpoints)
        try:
            site.start()
            yield site
        finally:
            site.close()
