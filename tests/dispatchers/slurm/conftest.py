"""Fixtures for tests of the Slurm dispatcher on the real test cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.slurm import apptainer_command, python_image, slurm_cluster
from tests.dispatchers.bench import Bench
from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.slurm import SlurmDispatcher

__all__ = ["apptainer_command", "python_image", "slurm_cluster"]


def slurm_setup(cluster: Cluster, folder: Path, prefix: str = "conf-") -> Setup:
    # Quotes, blanks, dollars and sbatch's own % in a path must survive every script on the way.
    return Setup(
        name="test",
        prefix=prefix,
        job_root=folder / "job root's $HOME %j",
        options={
            "type": "slurm",
            "environment": cluster.environment,
            "submits_per_second": 100,
            "pools_cached_for": 0,
        },
    )


@pytest.fixture
def setup(slurm_cluster: Cluster) -> Iterator[Setup]:
    with tempfile.TemporaryDirectory(dir=slurm_cluster.layout.job_root) as folder:
        yield slurm_setup(slurm_cluster, Path(folder))


@pytest.fixture
def dispatcher(setup: Setup) -> Iterator[SlurmDispatcher]:
    dispatcher = SlurmDispatcher(setup)
    yield dispatcher
    dispatcher.close()


@pytest.fixture
def bench(dispatcher: SlurmDispatcher, setup: Setup) -> Iterator[Bench]:
    bench = Bench(dispatcher, setup)
    yield bench
    bench.clean()
