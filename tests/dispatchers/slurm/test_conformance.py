"""The Slurm dispatcher keeps the contract, on a real cluster."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.dispatchers.bench import wait
from tests.dispatchers.slurm.wrapped import Wrapped
from trainmaster.dispatchers.base import JobRef, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance, Faults


@pytest.mark.slurm
class TestSlurm(DispatcherConformance):
    pool = "main"

    @pytest.fixture
    def wrapped(self) -> Iterator[Wrapped]:
        with tempfile.TemporaryDirectory(prefix="tm-wrapped-") as folder:
            yield Wrapped(Path(folder))

    @pytest.fixture
    def setup(self, setup: Setup, wrapped: Wrapped) -> Setup:
        return replace(setup, options={**setup.options, "commands": wrapped.commands})

    @pytest.fixture
    def faults(self, slurm_cluster: Cluster, wrapped: Wrapped) -> Faults:
        @contextlib.contextmanager
        def away() -> Iterator[None]:
            slurm_cluster.stop_controller()
            try:
                yield
            finally:
                slurm_cluster.start_controller()
                slurm_cluster.wait_for_nodes()

        def purge(ref: JobRef) -> None:
            slurm_cluster.set_min_job_age(2)
            try:
                wait(lambda: slurm_cluster.run("scontrol", "show", "job", ref.job_id).returncode != 0, "the purge", 120)
            finally:
                slurm_cluster.set_min_job_age()

        return Faults(
            away=away,
            unanswered=lambda: wrapped.spoiled("unanswered"),
            purge=purge,
            strange=lambda: wrapped.spoiled("strange"),
            noisy=lambda: wrapped.spoiled("noisy"),
        )
