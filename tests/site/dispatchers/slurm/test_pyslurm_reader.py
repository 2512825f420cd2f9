"""pyslurm as a reader. Both ways of reading are compared on the real cluster: with a real pyslurm where one is found
that fits its Slurm, and with a module in its place whose attributes, those of pyslurm 22.5 to 25.11, are filled from
what squeue says."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import ExternalJob, JobState, Observation, Setup, Unreachable
from trainmaster.dispatchers.cluster.access.access import make_access
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.slurm import SlurmDispatcher
from trainmaster.dispatchers.slurm.client import SlurmClient
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.pyslurm_reader import NoReader, PyslurmReader, release

STAND_IN = """
import json, os, subprocess, time
__version__ = os.environ.get("STAND_IN_VERSION", "22.5.1")
if __version__ == "dies":
    os._exit(11)

def status(text):
    number = int(text)
    return (None, number & 127) if number & 127 else (number >> 8, 0)

def moment(text):
    return int(text) if text.isdigit() else None

class Job:
    def __init__(self, fields):
        (number, self.name, self.state, self.state_reason, code, derived, submit, start, end, preempt, restarts,
         nodes, self.cluster, uid, self.user_name, self.partition, count, cpus, gres) = fields
        self.id = int(number)
        self.exit_code, self.exit_code_signal = status(code)
        self.derived_exit_code, self.derived_exit_code_signal = status(derived)
        self.submit_time, self.start_time, self.end_time = moment(submit), moment(start), moment(end)
        self.preempt_time, self.requeue_count = moment(preempt), int(restarts)
        self.allocated_nodes, self.user_id = nodes or None, int(uid)
        self.num_nodes, self.cpus = int(count), int(cpus)
        self.gres_per_node = {"gpu": int(gres.rpartition(":")[2])} if "gpu" in gres else {}

class Jobs(dict):
    @staticmethod
    def load(preload_passwd_info=False, frozen=False):
        fault = open(os.environ["STAND_IN_FAULT"]).read()
        if fault == "hangs":
            time.sleep(60)
        if fault == "dies":
            os._exit(11)
        if fault == "refuses":
            raise RuntimeError("Unable to contact slurm controller (connect failure)")
        fields = ("JobID Name State Reason exit_code DerivedEC SubmitTime StartTime EndTime PreemptTime RestartCnt "
                  "NodeList Cluster UserID UserName Partition NumNodes NumCPUs tres-per-node").split()
        out = subprocess.run(["squeue", "-h", "-t", "all", "-O", ",".join(f + ":|" for f in fields)], check=True,
                             capture_output=True, text=True, env={**os.environ, "SLURM_TIME_FORMAT": "%s"}).stdout
        return Jobs((row.split("|")[0], Job(row.split("|")[:-1])) for row in out.splitlines())
"""


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in does wrong; an empty file: nothing."""
    (tmp_path / "pyslurm.py").write_text(STAND_IN)
    (tmp_path / "fault").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "fault"


@pytest.fixture
def bench(setup: Setup, fault: Path) -> Iterator[Bench]:
    environment = {**setup.options["environment"], "STAND_IN_FAULT": str(fault), "STAND_IN_VERSION": "22.05.1"}
    options = {**setup.options, "environment": environment, "reader": "auto", "query_deadline": 2}
    dispatcher = SlurmDispatcher(replace(setup, options=options))
    bench = Bench(dispatcher, setup)
    yield bench
    bench.clean()
    dispatcher.close()


@pytest.mark.slurm
def test_both_readers_say_the_same(bench: Bench, setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    done = bench.submit(programs.ENDS_WELL)
    running = bench.submit(programs.WAITS, slots=2, slots_per_node=1)
    waiting = bench.submit(programs.ENDS_WELL, options=("--begin=now+1hour",))
    bench.ended(done)
    bench.ready(running)
    plain = SlurmDispatcher(setup)
    seen = {job.token: job for job in bench.dispatcher.observe().jobs}
    said = {job.token: job for job in plain.observe().jobs}
    plain.close()
    for ref in (done, running, waiting):
        assert seen[ref.token] == said[ref.token]
    assert caplog.text.count("jobs are listed through pyslurm 22.05.1") == 1
    bench.dispatcher.cancel([running])
    assert bench.ended(running).state is JobState.CANCELLED


@pytest.fixture
def real(slurm_cluster: Cluster) -> None:
    """A pyslurm for this machine's Slurm. One of another release may end the process that imports it."""
    probe = "import pyslurm; print(pyslurm.__version__)"
    environment = {**os.environ, **slurm_cluster.environment}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=environment)
    if done.returncode:
        pytest.skip(
            "no pyslurm is installed (PyPI has none for Slurm 22.05; docs/admin/clusters.md tells how to build one)"
        )
    wanted = slurm_cluster.command("scontrol", "--version")
    if release(done.stdout) != release(wanted):
        pytest.skip(f"pyslurm {done.stdout.strip()} does not fit {wanted.strip()}")


@pytest.mark.slurm
def test_real_pyslurm_agrees_with_squeue(
    real: None, setup: Setup, slurm_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = {**setup.options, "reader": "pyslurm", "external_jobs": True}
    bench = Bench(SlurmDispatcher(replace(setup, options=options)), setup)
    plain = SlurmDispatcher(replace(setup, options={**options, "reader": "commands"}))
    assert {pool.name for pool in plain.pools()} == {pool.name for pool in bench.dispatcher.pools()}
    try:
        refs = [
            bench.submit(programs.ENDS_WELL),
            bench.submit("import sys; sys.exit(3)"),
            bench.submit(programs.WAITS, slots=2, slots_per_node=1),
            bench.submit(programs.ENDS_WELL, options=("--begin=now+1hour",)),
            killed := bench.submit(programs.WAITS),
        ]
        for ref in refs[:2]:
            bench.ended(ref)
        bench.ready(refs[2])
        bench.ready(killed)
        bench.dispatcher.cancel([killed])
        bench.ended(killed)
        other = partial(slurm_cluster.command, "sbatch", "--parsable", "--job-name=other", "--output=/dev/null")
        whole = other("--gpus=2", "--wrap=sleep 300").strip()
        wait(lambda: slurm_cluster.command("squeue", "-h", "-o", "%T", "-j", whole).strip() == "RUNNING", "GPUs")
        other("--gpus-per-node=1", "--nodes=2", "--array=1-2%1", "--wrap=sleep 300")
        other("--hold", "--ntasks=2", "--wrap=sleep 300")

        def listed() -> list[tuple[list[Observation], list[ExternalJob]]]:
            seen = (each.observe() for each in (bench.dispatcher, plain, bench.dispatcher))
            return [(sorted(one.jobs, key=str), sorted(one.external, key=str)) for one in seen]

        wait(lambda: len(set(map(str, listed()))) == 1, "the same from both, and again from the first")
        ours = bench.dispatcher.observe()
        assert {ref.token for ref in refs} <= {job.token for job in ours.jobs}
        assert {job.slots for job in ours.external} >= {0, 2}
        assert "pyslurm is not used" not in caplog.text
    finally:
        slurm_cluster.command("scancel", "--name=other")
        bench.clean()
        bench.dispatcher.close()
        plain.close()


@pytest.mark.slurm
@pytest.mark.parametrize("how", ["hangs", "dies", "refuses"])
def test_whatever_goes_wrong_squeue_is_asked(
    bench: Bench, fault: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ref = bench.submit(programs.ENDS_WELL, options=("--begin=now+1hour",))
    assert bench.state(ref) is JobState.QUEUED
    fault.write_text(how)
    begun = time.monotonic()
    assert bench.state(ref) is JobState.QUEUED
    assert bench.state(ref) is JobState.QUEUED
    assert time.monotonic() - begun < 30
    assert caplog.text.count("pyslurm is not used for the next 10 minutes") == 1


@pytest.mark.parametrize(
    ("version", "words"),
    [("24.11.0", "does not fit Slurm 22.05.8"), ("dies", "its process has ended")],
)
def test_one_that_does_not_fit_is_not_used(fault: Path, version: str, words: str) -> None:
    reader = PyslurmReader({"STAND_IN_FAULT": str(fault), "STAND_IN_VERSION": version, "PATH": os.environ["PATH"]})
    with pytest.raises(NoReader, match=words):
        reader.start("22.05.8")
    with pytest.raises(NoReader):
        reader.jobs(deadline=1)


def test_reader_started_while_client_closes_is_ended(
    fault: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {"STAND_IN_FAULT": str(fault), "STAND_IN_VERSION": "22.5.1"}
    options = SlurmOptions.read({"reader": "pyslurm", "environment": environment, "commands": {"squeue": "/nowhere"}})
    client = SlurmClient(options, make_access(options, tmp_path, environment=options.client_environment))
    start, started = PyslurmReader.start, []

    def start_late(reader: PyslurmReader, version: str) -> None:
        start(reader, version)
        started.append(reader)
        client.close()

    monkeypatch.setattr(PyslurmReader, "start", start_late)
    monkeypatch.setattr(client, "version", lambda: "22.05.8")
    with pytest.raises(Unreachable):
        client.queue()
    (reader,) = started
    with pytest.raises(NoReader, match="its process has ended"):
        reader.jobs(deadline=1)


def test_a_master_with_more_than_a_thousand_open_files_reads_too(fault: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    reader = PyslurmReader({"STAND_IN_FAULT": str(fault), "STAND_IN_VERSION": "22.5.1", "PATH": os.environ["PATH"]})
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.enter_context(open(os.devnull))
        stack.callback(reader.close)
        reader.start("22.05.8")
        assert reader.version == "22.5.1"


def test_none_installed() -> None:
    assert "pyslurm" not in sys.modules
    reader = PyslurmReader({"PATH": os.environ["PATH"]})
    with pytest.raises(NoReader, match="its process has ended"):
        reader.start("22.05.8")


@pytest.mark.parametrize(
    ("version", "found"),
    [("24.11.5", "24.11"), ("slurm-wlm 22.05.8", "22.05"), ("25.11.0", "25.11"), ("22.5.1", "22.05"), ("", "")],
)
def test_the_release_of_a_version(version: str, found: str) -> None:
    """Python's packaging drops the nought of 22.05: pyslurm calls itself 22.5."""
    assert release(version) == found
