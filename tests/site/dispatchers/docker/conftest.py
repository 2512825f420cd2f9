"""Fixtures for tests of the Docker dispatcher."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.docker.engine import DockerEngine, docker_engine
from tests.support.docker.site import Site, running_site

__all__ = ["docker_engine"]


@pytest.fixture(scope="module")
def site(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(docker_engine, tmp_path_factory.mktemp("docker")) as site:
        site.add_agent()
        yield site
