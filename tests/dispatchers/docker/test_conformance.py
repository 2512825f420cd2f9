"""The docker dispatcher keeps the contract: a real agent, a real Docker daemon, the master's real API between them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.docker.engine import IMAGE, DockerEngine
from tests.docker.hosts import PATIENCE, AgentProcess, HubServer
from trainmaster.dispatchers.base import ContainerSpec, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance
from trainmaster.dispatchers.docker import DockerDispatcher

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def site(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Setup, AgentProcess]]:
    folder = tmp_path_factory.mktemp("docker")
    setup = Setup(
        name="hosts",
        prefix="conf-",
        job_root=folder / "master",
        options={"cancel_grace": 1.0, "poll_interval": 0.2},
    )
    dispatcher = DockerDispatcher(setup)
    dispatcher.lead()
    server = HubServer(dispatcher, setup.job_root).start()
    agent = AgentProcess(docker_engine, folder, server.url, setup.job_root / "agent-token", slots=4).start()
    deadline = time.monotonic() + PATIENCE
    while dispatcher.pools()[0].slots_total < 4:
        assert time.monotonic() < deadline, agent.log.read_text()
        time.sleep(0.02)
    TestDocker.the_dispatcher = dispatcher
    yield setup, agent
    deadline = time.monotonic() + PATIENCE
    while docker_engine.containers() or any((agent.data / "jobs").iterdir()):
        assert time.monotonic() < deadline, "forgotten jobs have left something on their host"
        time.sleep(0.05)
    agent.stop()
    server.stop()
    dispatcher.close()
    assert agent.complaints() == []


class TestDocker(DispatcherConformance):
    container: ClassVar[ContainerSpec] = ContainerSpec(runtime="docker", image=IMAGE)
    the_dispatcher: ClassVar[DockerDispatcher]

    @pytest.fixture
    def setup(self, site: tuple[Setup, AgentProcess]) -> Setup:
        return site[0]

    @pytest.fixture
    def dispatcher(self, site: tuple[Setup, AgentProcess]) -> DockerDispatcher:
        return self.the_dispatcher

    @pytest.fixture
    def job_root(self, site: tuple[Setup, AgentProcess]) -> Path:
        return site[1].data / "jobs"
