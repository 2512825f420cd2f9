"""The PBS dispatcher passes the conformance suite on a real PBS."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dispatcher_site import wait
from tests.support.pbs.site import PbsSite
from tests.support.pbs.wrapped import BANNER, PROGRAMS, STRANGE, UNANSWERED, SpoiledCommands
from trainmaster.dispatchers.base import JobRef, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance, Faults


@pytest.mark.pbs
class TestPbs(DispatcherConformance):
    retries = 180.0  # a scheduler may look at its queue only every minute

    @pytest.fixture(autouse=True)
    def _in_the_sites_queue(self, pbs_site: PbsSite, setup: Setup) -> None:
        if not pbs_site.history:
            pytest.skip("this PBS forgets ended jobs (job_history_enable is off)")
        type(self).pool = pbs_site.pool.name

    @pytest.fixture
    def commands(self, pbs_site: PbsSite, tmp_path: Path) -> SpoiledCommands:
        return SpoiledCommands(pbs_site, tmp_path / "commands")

    @pytest.fixture
    def setup(self, setup: Setup, commands: SpoiledCommands) -> Setup:
        return replace(setup, options={**setup.options, "commands": commands.paths})

    @pytest.fixture
    def faults(self, pbs_site: PbsSite, commands: SpoiledCommands) -> Faults:
        """All that an ordinary user can do on a PBS that others use too."""

        @contextlib.contextmanager
        def away() -> Iterator[None]:
            # Only root may stop the server. To the commands it is the same when nobody listens at its port.
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                port = nobody.getsockname()[1]
                with commands.spoiled(f"export PBS_BATCH_SERVICE_PORT={port}", *PROGRAMS):
                    yield

        def purge(ref: JobRef) -> None:
            pbs_site.command("qdel", "-x", ref.job_id)  # its owner may take a job out of the history
            wait(lambda: pbs_site.run("qstat", "-x", ref.job_id).returncode != 0, "the purge")

        return Faults(
            away=away,
            unanswered=lambda: commands.spoiled(UNANSWERED, "qsub"),
            purge=purge,
            strange=lambda: commands.spoiled(STRANGE, "qstat"),
            noisy=lambda: commands.spoiled(BANNER, *PROGRAMS),
        )
