"""A master with Docker hosts, all on this machine."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.docker.engine import IMAGE, DockerEngine
from tests.support.docker.hosts import USER, AgentProcess
from tests.support.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.client.master import Master

CONFIG = """
resource_manager:
  type: agent
  cluster_name: hosts
  poll_interval: 0.3
  cancel_grace: 5
  job_user: {user}
  agent_timeout: 4
  agent_reattach: {reattach}
  preemption_grace: 60
  scheduler: {{preemption: true}}{more}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
task_container_defaults:
  image: {image}
  shm_size_bytes: 128 MiB
"""


class Hosts:
    """A master and its agents. The master is one that a test may kill."""

    def __init__(self, engine: DockerEngine, folder: Path, reattach: float, more: str = "") -> None:
        self.engine, self.folder = engine, folder
        self._gates = folder / "gates"
        self._gates.mkdir(mode=0o755)
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir(mode=0o700)
        account = pwd.getpwnam(USER)
        os.chown(checkpoints, account.pw_uid, account.pw_gid)
        text = CONFIG.format(user=USER, checkpoints=checkpoints, image=IMAGE, reattach=reattach, more=more)
        self.master = MasterProcess(folder, text)
        self.agents: list[AgentProcess] = []

    def add(self, name: str, slots: int = 2, pool: str = "", **more: Any) -> AgentProcess:
        token = self.master.data / "jobs" / "hosts" / "agent-token"
        where = (self.engine, self.folder, self.master.url, token, name)
        agent = AgentProcess(*where, slots=slots, pool=pool, **more)
        self.agents.append(agent.start())
        return agent

    def gate(self, name: str, at: int, **keys: Any) -> dict[str, Any]:
        """For an experiment: trials that go no further than epoch `at` until `open`. `keys`: of its file."""
        bind = {"host_path": str(self._gates), "container_path": str(self._gates), "read_only": True}
        return {"wait_at": at, "wait_for": str(self._gates / name), "keys": {"bind_mounts": [bind], **keys}}

    def open(self, name: str) -> None:
        (self._gates / name).touch()

    def names(self) -> Sequence[str]:
        """Of all containers on the daemon."""
        return self.engine.containers()

    def entity(self, master: Master, name: str) -> dict[str, Any]:
        return next(agent for agent in master.agents() if agent["id"] == name)

    def clean_up(self) -> None:
        self.master.clean_up()
        for agent in self.agents:
            agent.stop()
        self.engine.remove_everything()


@contextmanager
def running_hosts(
    engine: DockerEngine, *names: str, slots: int = 2, reattach: float = 60, more: str = ""
) -> Iterator[Hosts]:
    """`more`: of the master's configuration, after the keys of the resource manager."""
    folder = make_folder()
    hosts = Hosts(engine, folder, reattach, more)
    try:
        hosts.master.start()
        for name in names:
            hosts.add(name, slots)
        client = hosts.master.client()
        wait_for(
            lambda: len([a for a in client.agents() if a["slots"] and a["id"] in names]) == len(names), "the agents"
        )
        yield hosts
    finally:
        hosts.clean_up()
        complaints = [*hosts.master.errors(), *(line for agent in hosts.agents for line in agent.complaints())]
        remove_folder(folder)
    assert complaints == []
