"""The Docker dispatcher passes the conformance suite: a real agent, a real Docker daemon, the master's real API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.docker.engine import IMAGE
from tests.support.docker.site import Site
from trainmaster.dispatchers.base import ContainerSpec, Dispatcher, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance
from trainmaster.dispatchers.docker import DockerDispatcher

pytestmark = pytest.mark.docker


class TestDocker(DispatcherConformance):
    container: ClassVar[ContainerSpec] = ContainerSpec(runtime="docker", image=IMAGE)

    @pytest.fixture
    def setup(self, site: Site) -> Setup:
        return site.setup

    @pytest.fixture
    def dispatcher(self, site: Site) -> DockerDispatcher:
        return site.dispatcher

    @pytest.fixture
    def job_root(self, site: Site) -> Path:
        return site.agent.data / "jobs"

    @pytest.fixture
    def make_dispatcher(self, site: Site) -> Callable[[], Dispatcher]:
        """Only one leads: the first lets go when the second begins, and takes over again in the end."""

        class Second(DockerDispatcher):
            def close(self) -> None:
                super().close()
                site.take_over(site.dispatcher)

        def make() -> Dispatcher:
            site.dispatcher.follow()
            second = Second(site.setup)
            site.take_over(second)
            return second

        return make
