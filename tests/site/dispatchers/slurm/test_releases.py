"""The dispatcher keeps the contract under other releases of Slurm: `pytest -m releases`.

Not part of a run without `-m`: the chroots are fetched from Debian's archive, which keeps only the newest builds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.site.dispatchers.slurm.conftest import slurm_faults, slurm_setup
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.release import ReleaseCluster
from tests.support.dispatcher_site import wait
from tests.support.slurm.wrapped import Wrapped
from trainmaster.dispatchers.base import JobState, Rejected, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance, Faults, programs
from trainmaster.dispatchers.conformance.suite import MakeSpec
from trainmaster.dispatchers.slurm import SlurmDispatcher

pytestmark = [pytest.mark.slurm, pytest.mark.releases]


@pytest.fixture(scope="class")
def cluster(request: pytest.FixtureRequest) -> Iterator[ReleaseCluster]:
    if "releases" not in str(request.config.getoption("markexpr")):
        pytest.skip("other releases of Slurm are tested by `pytest -m releases`")
    cluster = ReleaseCluster(request.cls.suite)
    was_up = cluster.controller.pid() is not None
    try:
        cluster.up()
    except Unavailable as reason:
        pytest.skip(f"no Slurm of {cluster.suite}: {reason}")
    yield cluster
    if not was_up:
        cluster.down()


class Release(DispatcherConformance):
    """The public suite, and what differs from release to release."""

    __test__ = False
    pool = "main"
    suite: ClassVar[str]
    version: ClassVar[str]

    @pytest.fixture
    def wrapped(self, cluster: ReleaseCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wrapped]:
        # Only while the scripts are made: they name the real commands in full.
        with tempfile.TemporaryDirectory(prefix="tm-wrapped-") as folder, monkeypatch.context() as patch:
            patch.setenv("PATH", f"{cluster.programs}:{os.environ['PATH']}")
            made = Wrapped(Path(folder))
            patch.undo()
            yield made

    @pytest.fixture
    def setup(self, cluster: ReleaseCluster, wrapped: Wrapped) -> Iterator[Setup]:
        with tempfile.TemporaryDirectory(dir=cluster.layout.job_root) as folder:
            yield slurm_setup(cluster, Path(folder), "rel-", commands=wrapped.commands)

    @pytest.fixture
    def dispatcher(self, setup: Setup) -> Iterator[SlurmDispatcher]:
        dispatcher = SlurmDispatcher(setup)
        yield dispatcher
        dispatcher.close()

    @pytest.fixture
    def faults(self, cluster: ReleaseCluster, wrapped: Wrapped) -> Faults:
        return slurm_faults(cluster, wrapped)

    def test_the_version_is_read(self, dispatcher: SlurmDispatcher) -> None:
        assert dispatcher.probe().version.startswith(f"{self.version}.")

    @pytest.mark.parametrize("dialect", ["tres", "gres"])
    def test_gpus_are_asked_for_in_both_dialects(self, setup: Setup, make_spec: MakeSpec, dialect: str) -> None:
        """26.05 refuses `--gres=gpu` beside `--gpus-per-node`; other generic resources must still go with either."""
        dispatcher = SlurmDispatcher(replace(setup, options={**setup.options, "tres_supported": dialect == "tres"}))
        spec = make_spec(slots=2, slots_per_node=1)
        ref = dispatcher.submit(spec)
        wait(lambda: any(job.state.terminal for job in dispatcher.observe().jobs if job.token == ref.token), "its end")
        (end,) = [job for job in dispatcher.observe().jobs if job.token == ref.token]
        assert (end.state, len(end.nodes)) == (JobState.COMPLETED, 2)
        dispatcher.close()

    def test_refusals_are_the_users(self, dispatcher: SlurmDispatcher, make_spec: MakeSpec) -> None:
        for options in (("--constraint=nosuch",), ("--nodelist=n99",), ("--time=1", "--begin=yesterdayish")):
            with pytest.raises(Rejected):
                dispatcher.submit(make_spec(options={"sbatch_args": list(options)}))

    def test_held_requeued_job_shows_its_restart(
        self, dispatcher: SlurmDispatcher, cluster: ReleaseCluster, make_spec: MakeSpec, job_root: Path
    ) -> None:
        spec = make_spec(programs.STUBBORN)
        ref = dispatcher.submit(spec)
        wait((job_root / spec.token / "ready").exists, "the start of the job")
        cluster.command("scontrol", "update", f"JobId={ref.job_id}", "Requeue=1")
        cluster.command("scontrol", "requeuehold", ref.job_id)

        def held() -> bool:
            return any(
                job.state is JobState.HELD and job.restarts == 1
                for job in dispatcher.observe().jobs
                if job.token == ref.token
            )

        wait(held, "the hold")


class TestSlurm2411(Release):
    __test__ = True
    suite = "trixie"
    version = "24.11"


class TestSlurm2605(Release):
    __test__ = True
    suite = "sid"
    version = "26.05"
