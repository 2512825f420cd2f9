"""Frameworks on two Docker hosts: sums over two workers on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import packages
from tests.support.cluster.slurm import apptainer_command, horovod_image, torch_image
from tests.support.docker.engine import DockerEngine, docker_engine
from tests.support.docker.masters import Hosts, running_hosts
from tests.support.frameworks import ON_DOCKER, Training, begin_sum, check_record, check_sum
from tests.support.master import ended_as

__all__ = ["apptainer_command", "docker_engine", "horovod_image", "torch_image"]
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]  # an image may have to be built


@pytest.fixture(scope="module")
def hosts(docker_engine: DockerEngine) -> Iterator[Hosts]:
    with running_hosts(docker_engine, "host1", "host2") as hosts:
        yield hosts


@pytest.mark.parametrize("training", ON_DOCKER, ids=str)
def test_all_workers_of_two_hosts_take_part(
    training: Training, hosts: Hosts, apptainer_command: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(f"{training.image}_image")
    try:
        image = hosts.engine.import_sif(apptainer_command, path)
    except packages.Unavailable as reason:
        pytest.skip(str(reason))
    master = hosts.master.client()
    keys = {
        "resources": {"slots_per_trial": 4},
        "environment": {"image": image, "environment_variables": ["OMP_NUM_THREADS=1"]},
    }
    number = begin_sum(master, training, keys)
    ended_as(master, number, "COMPLETED", 240)
    check_sum(master, number)
    check_record(master, number, training, scheduler="Docker", sums=True)
