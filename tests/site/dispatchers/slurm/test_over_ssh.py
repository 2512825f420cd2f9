"""The Slurm dispatcher of a master elsewhere: the whole suite over paramiko, the essential part over OpenSSH, and
connections that fail in the middle of a submit."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.site.dispatchers.access.conftest import ssh_server, sshd
from tests.support.access.sshd import Sshd
from tests.support.cluster.cluster import Cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import Ambiguous, JobState, Setup, Unreachable
from trainmaster.dispatchers.cluster.access import helper_client
from trainmaster.dispatchers.conformance import DispatcherConformance, Faults, programs

__all__ = ["ssh_server", "sshd"]
pytestmark = pytest.mark.slurm
USER = "tmalice"


def setup_over(client: str, sshd: Sshd, cluster: Cluster, folder: Path, **options: object) -> Setup:
    keys = {"host": "127.0.0.1", "port": sshd.port, "user": USER, "client": client}
    return Setup(
        name="test",
        prefix="far-",
        job_root=folder / "job root's $HOME %j",
        options={
            "environment": cluster.environment,
            "job_storage_root": str(folder),
            "submits_per_second": 100,
            "pools_cached_for": 0,
            "ssh": {**keys, "identity_file": str(sshd.key), "known_hosts": str(sshd.known_hosts)},
            **options,
        },
    )


@pytest.fixture
def folder(slurm_cluster: Cluster) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=slurm_cluster.layout.job_root))
    shutil.chown(folder, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def client() -> str:
    return "paramiko"


@pytest.fixture
def setup(sshd: Sshd, slurm_cluster: Cluster, folder: Path, client: str) -> Setup:
    return setup_over(client, sshd, slurm_cluster, folder)


class TestOverParamiko(DispatcherConformance):
    pool = "main"

    @pytest.fixture
    def faults(self, sshd: Sshd) -> Faults:
        @contextlib.contextmanager
        def away() -> Iterator[None]:
            sshd.stop()
            try:
                yield
            finally:
                sshd.start()

        @contextlib.contextmanager
        def noisy() -> Iterator[None]:
            profile = Path(f"~{USER}/.bashrc").expanduser()
            before = profile.read_bytes()
            profile.write_text("echo 'Welcome!'; echo 4711; echo warning >&2\n")
            try:
                yield
            finally:
                profile.write_bytes(before)

        return Faults(away=away, noisy=noisy)


@pytest.mark.parametrize("client", ["openssh"])
def test_the_essential_part_over_openssh(bench: Bench, client: str) -> None:
    ref = bench.submit(programs.TELLS)
    assert bench.ended(ref).state is JobState.COMPLETED
    remains = bench.dispatcher.collect(ref.token, places={})
    assert remains.streams["core"].content == b'{"n": 1}\n{"n": 2}\n'
    assert bench.dispatcher.log_path(ref.token) is None
    waits = bench.submit(programs.WAITS)
    bench.ready(waits)
    bench.dispatcher.cancel([waits])
    assert bench.ended(waits).state is JobState.CANCELLED
    for token in (ref.token, waits.token):
        bench.dispatcher.forget(token)
        assert not (bench.setup.job_root / token).exists()


@pytest.mark.parametrize("client", ["paramiko", "openssh"])
def test_eight_submits_at_once(bench: Bench, client: str) -> None:
    bench.dispatcher.pools()
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        refs = list(threads.map(lambda _: bench.submit(programs.ENDS_WELL, slots=0), range(16)))
    assert time.monotonic() - begun < 180
    assert len({ref.job_id for ref in refs}) == 16
    listed = {job.token: job.job_id for job in bench.dispatcher.observe().jobs}
    assert {ref.token: listed.get(ref.token) for ref in refs} == {ref.token: ref.job_id for ref in refs}


@pytest.mark.parametrize("client", ["paramiko", "openssh"])
def test_a_server_that_dies_in_the_middle_of_a_submit(
    bench: Bench, sshd: Sshd, slurm_cluster: Cluster, client: str
) -> None:
    """sbatch waits for a controller that sleeps while its SSH connection goes: nobody knows, and the job is there."""
    bench.dispatcher.pools()
    spec = bench.spec(programs.ENDS_WELL)
    slurm_cluster.pause_controller()
    try:
        with ThreadPoolExecutor(1) as thread:
            submit = thread.submit(bench.dispatcher.submit, spec)
            wait(lambda: _runs("sbatch", spec.token), "the start of sbatch")
            sshd.stop()
            with pytest.raises(Ambiguous, match="lost"):
                submit.result(60)
        with pytest.raises(Unreachable):
            bench.dispatcher.observe()
        with pytest.raises(Unreachable):
            bench.dispatcher.submit(bench.spec(programs.ENDS_WELL))
    finally:
        slurm_cluster.resume_controller()
        sshd.start_if_stopped()
    wait(lambda: bench.seen(spec.token), "the job that was submitted after all")
    wait(lambda: not _runs("sbatch", spec.token), "the end of sbatch")
    assert len(bench.seen(spec.token)) == 1


def test_a_server_that_freezes_before_a_submit_has_taken_nothing(
    bench: Bench, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.dispatcher.pools()
    spec = bench.spec(programs.ENDS_WELL)
    with monkeypatch.context() as patch, sshd.frozen():
        patch.setattr(helper_client, "START", 2.0)
        with pytest.raises(Unreachable):
            bench.dispatcher.submit(spec)
    assert bench.seen(spec.token) == []
    bench.dispatcher.submit(spec)
    assert len(bench.seen(spec.token)) == 1


def _runs(program: str, token: str) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(program.encode()) and f"--job-name={token}".encode() in words:
                return True
    return False
