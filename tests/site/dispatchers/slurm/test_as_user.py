"""An ordinary user's jobs in containers: the whole suite, run under the user's account."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.users import run_as
from trainmaster.dispatchers.base import ContainerSpec, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance
from trainmaster.dispatchers.slurm import SlurmDispatcher

INSIDE = "TRAINMASTER_SUITE_AS_USER"  # set in the inner run: "image:apptainer:job root:slurm.conf"

if INSIDE in os.environ:
    IMAGE, APPTAINER, ROOT, SLURM_CONF = os.environ[INSIDE].split(":")

    class TestSlurmWithApptainer(DispatcherConformance):
        """Run by the test below, as another user."""

        pool = "main"
        container = ContainerSpec(runtime="apptainer", image=IMAGE)

        @pytest.fixture
        def setup(self) -> Iterator[Setup]:
            with tempfile.TemporaryDirectory(dir=ROOT) as folder:
                options = {
                    "environment": {"SLURM_CONF": SLURM_CONF},
                    "container_command": APPTAINER,
                    "submits_per_second": 100,
                    "pools_cached_for": 0,
                }
                yield Setup(name="test", prefix="user-", job_root=Path(folder) / "it's $HOME", options=options)

        @pytest.fixture
        def dispatcher(self, setup: Setup) -> Iterator[SlurmDispatcher]:
            dispatcher = SlurmDispatcher(setup)
            yield dispatcher
            dispatcher.close()

else:

    @pytest.mark.slurm
    @pytest.mark.apptainer
    def test_the_suite_passes_for_an_ordinary_user_with_containers(
        slurm_cluster: Cluster, apptainer_command: Path, python_image: Path
    ) -> None:
        here = Path(__file__)
        if run_as("tmalice", [sys.executable, "-c", "import trainmaster"]).returncode != 0:
            pytest.skip(f"tmalice cannot run {sys.executable} or read trainmaster's source")
        root = Path(tempfile.mkdtemp(dir=slurm_cluster.layout.job_root))
        shutil.chown(root, "tmalice")
        values = (python_image, apptainer_command, root, slurm_cluster.layout.slurm_conf)
        done = run_as(
            "tmalice",
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(here)],
            environment={INSIDE: ":".join(map(str, values)), "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=540,
            cwd=str(here.parents[4]),
        )
        shutil.rmtree(root)
        assert done.returncode == 0, done.stdout[-5000:]
        assert " passed" in done.stdout
