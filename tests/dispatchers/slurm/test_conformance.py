"""The Slurm dispatcher keeps the contract, on a real cluster."""

import pytest

from trainmaster.dispatchers.conformance import DispatcherConformance


@pytest.mark.slurm
class TestSlurm(DispatcherConformance):
    pool = "main"
