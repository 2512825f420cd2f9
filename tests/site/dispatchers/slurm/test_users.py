"""Jobs of two real users on real Slurm, through sudo and the helper."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.dispatchers.access.conftest import helper_installed
from tests.support.access.installed import PROGRAM, Installed
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.users import run_as
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import JobRef, JobState, Rejected, Setup, Signal, StagedFile
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.slurm import SlurmDispatcher

__all__ = ["helper_installed"]
pytestmark = pytest.mark.slurm


@pytest.fixture
def setup(slurm_cluster: Cluster, helper_installed: Installed) -> Iterator[Setup]:
    with tempfile.TemporaryDirectory(dir=slurm_cluster.layout.job_root) as folder:
        os.chmod(folder, 0o1777)
        helper_installed.allow(Path(folder), slurm_cluster.environment)
        options = {"environment": slurm_cluster.environment, "impersonation": "sudo", "helper": str(PROGRAM)}
        options |= {"submits_per_second": 100, "pools_cached_for": 0}  # type: ignore[dict-item]
        yield Setup(name="test", prefix="users-", job_root=Path(folder), options=options)


@pytest.fixture
def bench(dispatcher: SlurmDispatcher, setup: Setup) -> Iterator[Bench]:
    yield Bench(dispatcher, setup)
    alive = [job for job in dispatcher.observe().jobs if not job.state.terminal]
    dispatcher.cancel([JobRef(job.token, job.job_id, job.cluster, job.user) for job in alive])
    wait(lambda: all(job.state.terminal for job in dispatcher.observe().jobs), "the end of all jobs")


def test_each_job_runs_is_seen_and_ends_as_its_user(bench: Bench, slurm_cluster: Cluster) -> None:
    refs = [bench.submit(programs.WAITS, user=user) for user in ("tmalice", "tmbob")]
    for ref in refs:
        bench.ready(ref)
        assert pwd.getpwuid((bench.folder(ref) / "ready").stat().st_uid).pw_name == ref.user
        shown = slurm_cluster.command("scontrol", "show", "job", ref.job_id)
        assert f"UserId={ref.user}(" in shown
        other = "tmbob" if ref.user == "tmalice" else "tmalice"
        for path in ("", "job.json", "runtime.zip", "output.txt", "ready"):
            assert run_as(other, ["cat", str(bench.folder(ref) / path)]).returncode != 0
        assert run_as(other, ["ls", str(bench.folder(ref))]).returncode != 0
    assert {job.token: job.user for job in bench.dispatcher.observe().jobs if not job.state.terminal} == {
        ref.token: ref.user for ref in refs
    }
    bench.dispatcher.signal(refs[:1], Signal.PREEMPT)
    assert bench.ended(refs[0]).state is JobState.COMPLETED
    bench.dispatcher.cancel(refs)
    assert bench.ended(refs[1]).state is JobState.CANCELLED
    for ref in refs:
        assert bench.dispatcher.explain(ref).text
        bench.dispatcher.forget(ref.token, ref.user)
        assert not bench.folder(ref).exists()


def test_job_results_are_collected_as_its_user(bench: Bench) -> None:
    ref = bench.submit(programs.TELLS, user="tmbob")
    bench.ended(ref)
    wait(lambda: bench.dispatcher.collect(ref.token, ref.user).exits, "the exit record")
    assert bench.dispatcher.collect(ref.token, "tmbob", {}).streams["core"].content == b'{"n": 1}\n{"n": 2}\n'
    assert bench.dispatcher.log_path(ref.token) is None


@pytest.mark.parametrize(
    ("user", "why"),
    [("root", "never run as root"), ("daemon", "system account"), ("no-such-user", "no account"), ("-x", "name")],
)
def test_accounts_that_no_job_runs_as(bench: Bench, user: str, why: str) -> None:
    spec = bench.spec(user=user)
    assert any(why in sentence for sentence in bench.dispatcher.check(spec))
    with pytest.raises(Rejected, match=why):
        bench.dispatcher.submit(spec)
    assert list(bench.setup.job_root.iterdir()) == []


def test_a_demanded_link(setup: Setup) -> None:
    strict = SlurmDispatcher(
        Setup(setup.name, setup.prefix, setup.job_root, {**setup.options, "require_user_link": True})
    )
    bench = Bench(strict, setup)
    assert any("none is linked" in sentence for sentence in strict.check(bench.spec()))
    with pytest.raises(Rejected, match="link-with-agent-user"):
        strict.submit(bench.spec())
    assert strict.check(bench.spec(user="tmalice")) == []


def test_others_jobs_are_external_and_forgers_are_named(bench: Bench, slurm_cluster: Cluster) -> None:
    ref = bench.submit(programs.WAITS, user="tmalice")
    for name in ("my own", ref.token):
        command = ["sbatch", "--hold", "-p", "main", "-N2", "--gpus-per-node=1", "-o", "/dev/null", "-J", name]
        done = run_as("tmbob", [*command, "--wrap", "true"], environment=slurm_cluster.environment)
        assert done.returncode == 0, done.stderr
    seen = bench.dispatcher.observe()
    assert sorted(str(job.user) for job in seen.jobs if job.token == ref.token) == ["tmalice", "tmbob"]
    mine = [job for job in seen.external if job.user == "tmbob"]
    assert [(job.name, job.pool, job.state, job.nodes, job.slots) for job in mine] == [
        ("my own", "main", JobState.HELD, 2, 2)
    ]
    run_as("tmbob", ["scancel", "-u", "tmbob"], environment=slurm_cluster.environment)


def test_nothing_is_wrong_with_the_set_up(dispatcher: SlurmDispatcher) -> None:
    found = dispatcher.probe()
    assert found.impersonation
    # This test's process is root, for whom sudoers has no line; the service account's set-up is tested elsewhere.
    fatal = [problem.text for problem in found.problems if problem.fatal]
    assert fatal == [f"sudo does not let root run {PROGRAM} without a password."]


def test_a_secret_is_the_users_alone(bench: Bench) -> None:
    files = {**programs.runtime(programs.WAITS), "secrets/token": StagedFile(b"s3cret")}
    ref = bench.submit("", user="tmalice", files=files)
    path = bench.folder(ref) / "secrets/token"
    assert (path.owner(), path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == ("tmalice", 0o600, 0o700)
