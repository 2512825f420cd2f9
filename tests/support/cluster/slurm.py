"""Pytest fixtures for the real parts. Import the ones a test module needs:

    from tests.support.cluster.slurm import slurm_cluster

A part that cannot be had on this machine skips the tests that ask for it, with the reason in one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.cluster import apptainer, images
from tests.support.cluster.accounting import AccountedCluster
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.failover import FailoverCluster
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.preemption import PreemptingCluster
from tests.support.cluster.users import ensure_users

C = TypeVar("C", bound=Cluster)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """The running test cluster. One that was up before stays up; otherwise it is taken down at the end."""
    yield from _up(Cluster())


@pytest.fixture(scope="module")
def accounted_cluster() -> Iterator[AccountedCluster]:
    """The cluster that keeps accounts, in the same manner."""
    yield from _up(AccountedCluster())


@pytest.fixture(scope="module")
def preempting_cluster() -> Iterator[PreemptingCluster]:
    """The cluster whose urgent jobs take the resources of others."""
    yield from _up(PreemptingCluster())


@pytest.fixture(scope="module")
def failover_cluster() -> Iterator[FailoverCluster]:
    """The cluster with a spare controller, new each time."""
    cluster = FailoverCluster()
    cluster.down()
    try:
        cluster.up()
    except Unavailable as reason:
        pytest.skip(f"no Slurm cluster: {reason}")
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def apptainer_command() -> Path:
    """Path of an `apptainer` that ordinary users can run."""
    try:
        ensure_users()
        return apptainer.install(Cluster().layout)
    except Unavailable as reason:
        pytest.skip(f"no Apptainer: {reason}")


@pytest.fixture(scope="session")
def python_image(apptainer_command: Path) -> Path:
    """A container image with Python and nothing else."""
    return _image("python")


@pytest.fixture(scope="session")
def torch_image(apptainer_command: Path) -> Path:
    """A container image with PyTorch for the CPU, NumPy and scikit-learn."""
    return _image("torch")


@pytest.fixture(scope="session")
def frameworks_image(apptainer_command: Path) -> Path:
    """A container image with what trains beside PyTorch: DeepSpeed, Accelerate, JAX, XGBoost, MPI."""
    return _image("frameworks")


@pytest.fixture(scope="session")
def openmpi_image(apptainer_command: Path) -> Path:
    """A container image with Open MPI and mpi4py."""
    return _image("openmpi")


@pytest.fixture(scope="session")
def horovod_image(apptainer_command: Path) -> Path:
    """A container image with TensorFlow and Horovod."""
    return _image("horovod")


def _up(cluster: C) -> Iterator[C]:
    was_up = cluster.controller.pid() is not None
    try:
        cluster.up()
    except Unavailable as reason:
        pytest.skip(f"no Slurm cluster: {reason}")
    yield cluster
    if not was_up:
        cluster.down()


def _image(name: str) -> Path:
    try:
        return images.build(Cluster().layout, name)
    except Unavailable as reason:
        pytest.skip(f"no image {name}: {reason}")
