"""Fixtures for tests of the Slurm dispatcher on the real test cluster."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, python_image, slurm_cluster
from tests.support.dispatcher_site import Bench, wait
from tests.support.slurm.wrapped import Wrapped
from trainmaster.dispatchers.base import JobRef, Setup
from trainmaster.dispatchers.conformance import Faults
from trainmaster.dispatchers.slurm import SlurmDispatcher

__all__ = ["apptainer_command", "python_image", "slurm_cluster"]


def slurm_setup(cluster: Cluster, folder: Path, prefix: str = "conf-", **options: object) -> Setup:
    """`options` beside those that every test wants."""
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
            **options,
        },
    )


def slurm_faults(cluster: Cluster, wrapped: Wrapped) -> Faults:
    """What the conformance suite may do to a cluster whose commands are `wrapped`."""

    @contextlib.contextmanager
    def away() -> Iterator[None]:
        cluster.stop_controller()
        try:
            yield
        finally:
            cluster.start_controller()
            cluster.wait_for_nodes()

    def purge(ref: JobRef) -> None:
        cluster.set_min_job_age(2)
        try:
            wait(lambda: cluster.run("scontrol", "show", "job", ref.job_id).returncode != 0, "the purge", 120)
        finally:
            cluster.set_min_job_age()

    return Faults(
        away=away,
        unanswered=lambda: wrapped.spoiled("unanswered"),
        purge=purge,
        strange=lambda: wrapped.spoiled("strange"),
        noisy=lambda: wrapped.spoiled("noisy"),
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
