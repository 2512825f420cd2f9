"""The Slurm dispatcher passes the conformance suite on a real cluster."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.site.dispatchers.slurm.conftest import slurm_faults
from tests.support.cluster.cluster import Cluster
from tests.support.slurm.wrapped import Wrapped
from trainmaster.dispatchers.base import Setup
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
        return slurm_faults(slurm_cluster, wrapped)
