"""Faults on a real cluster, and how the dispatcher reports them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.site.dispatchers.slurm.conftest import slurm_setup
from tests.support.cluster.cluster import Cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import Ambiguous, Canceller, JobRef, JobState, Rejected
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.slurm import SlurmDispatcher

pytestmark = pytest.mark.slurm

EATS_MEMORY = "x = bytearray(400 << 20)\nprint(len(x))\n"
SLEEPS = """
import signal, sys, time
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
open(sys.argv[1] + "/ready", "w").close()
time.sleep(600)
"""


@dataclass(frozen=True)
class Limited:
    """Two jobs whose time is up: one stays, one listens to the warning."""

    bench: Bench
    stays: JobRef
    leaves: JobRef


@pytest.fixture(scope="module", autouse=True)
def limited(slurm_cluster: Cluster) -> Iterator[Limited]:
    """Begun before all other tests, because Slurm looks at time limits only twice a minute. On a node of their own."""
    with tempfile.TemporaryDirectory(dir=slurm_cluster.layout.job_root) as folder:
        setup = slurm_setup(slurm_cluster, Path(folder), "limit-")
        dispatcher = SlurmDispatcher(setup)
        bench = Bench(dispatcher, setup, pool="small")
        # With a limit of a minute and a warning a minute before it, the warning is due at once.
        leaves = bench.submit(programs.WAITS, options=("--time=1",), walltime_grace=60)
        stays = bench.submit(SLEEPS, options=("--time=1",), walltime_grace=1)
        bench.ready(stays)
        slurm_cluster.command("scontrol", "update", f"JobId={stays.job_id}", "EndTime=now+1")
        yield Limited(bench, stays, leaves)
        bench.clean()
        dispatcher.close()


def test_submit_without_answer_is_ambiguous_and_job_is_found(bench: Bench, slurm_cluster: Cluster) -> None:
    spec = bench.spec()
    bench.dispatcher.check(spec)  # so that the submit itself is the first question that goes unanswered
    slurm_cluster.pause_controller()
    try:
        with pytest.raises(Ambiguous) as caught:
            bench.dispatcher.submit(spec)
    finally:
        slurm_cluster.resume_controller()
    assert caught.value.token == spec.token
    wait(lambda: bench.seen(spec.token), "the job whose submit had no answer")
    found = bench.seen(spec.token)
    assert len(found) == 1
    wait(lambda: bench.seen(spec.token)[0].state is JobState.COMPLETED, "its end")


def test_scancel_by_another_user_is_reported(bench: Bench, slurm_cluster: Cluster) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    slurm_cluster.command("scancel", ref.job_id)
    end = bench.ended(ref)
    assert end.state is JobState.CANCELLED
    assert end.explanation == "The job was cancelled (scancel)."
    told = bench.dispatcher.explain(ref)
    assert (told.state, told.canceller, told.script_began) == (JobState.CANCELLED, Canceller.UNKNOWN, True)
    # The controller is asked about itself once, and not for what we cancel ourselves.
    slurm_cluster.reset_rpc_counts()
    started = bench.dispatcher.observe().controller_started_at
    assert started is not None
    assert started < (end.started_at or 0)
    ours = bench.submit(programs.WAITS)
    bench.ready(ours)
    bench.dispatcher.cancel([ours])
    assert bench.ended(ours).state is JobState.CANCELLED
    assert not [name for name in slurm_cluster.rpc_counts() if "CONFIG" in name or "BUILD_INFO" in name]


def test_failed_node_ends_job_as_infrastructure_failure(bench: Bench, slurm_cluster: Cluster) -> None:
    ref = bench.submit(programs.STUBBORN)
    bench.ready(ref)
    node = bench.seen(ref.token)[0].nodes[0]
    slurm_cluster.kill_node(node)
    try:
        end = bench.ended(ref, seconds=180)
        assert end.state is JobState.INFRASTRUCTURE
        assert end.raw_state == "NODE_FAIL"
        assert end.explanation == f"A node of the job failed on {node}."
        assert bench.dispatcher.explain(ref).state is JobState.INFRASTRUCTURE
    finally:
        slurm_cluster.restore_node(node)


@pytest.mark.parametrize("nodes", [1, 2])
def test_too_much_memory_is_named(bench: Bench, nodes: int) -> None:
    ref = bench.submit(EATS_MEMORY, slots=nodes, slots_per_node=1, options=("--mem=100M",))
    end = bench.ended(ref)
    # When one of two tasks runs out of memory, the other is ended, and the higher of their statuses is the job's.
    assert end.state is JobState.OUT_OF_MEMORY or (nodes == 2 and end.state is JobState.FAILED)
    told = bench.dispatcher.explain(ref)
    assert told.state is JobState.OUT_OF_MEMORY
    assert "--mem" in told.text


def test_a_script_that_cannot_start_is_infrastructure(bench: Bench, slurm_cluster: Cluster) -> None:
    spec = bench.spec(options=("--begin=now+1hour",))
    ref = bench.dispatcher.submit(spec)
    bench.folder(ref).rename(bench.folder(ref).with_name("moved-away"))
    slurm_cluster.command("scontrol", "update", f"JobId={ref.job_id}", "StartTime=now")
    end = bench.ended(ref)
    assert end.state is JobState.INFRASTRUCTURE
    assert end.exit_signal == 53
    assert "could not start" in end.explanation


def test_a_job_that_slurmd_refuses_to_start_is_infrastructure(bench: Bench) -> None:
    """As of a number that it has just killed ("Killing non-startable batch job"): Slurm reports status 1, as of a
    script that ended so. That cannot be provoked at will; what is different is that no output file is made."""
    ref = bench.submit("raise SystemExit(1)")
    end = bench.ended(ref)
    assert (end.state, end.exit_code) == (JobState.FAILED, 1)
    assert bench.dispatcher.explain(ref).state is JobState.FAILED
    (bench.folder(ref) / "output.txt").unlink()
    told = bench.dispatcher.explain(ref)
    assert (told.state, told.exit_code) == (JobState.INFRASTRUCTURE, 1)
    assert told.text == f"Slurm did not start the job's script on {end.nodes[0]}; the log of slurmd there says why."


def test_odd_names_of_other_jobs_do_not_break_or_forge_list(bench: Bench, slurm_cluster: Cluster) -> None:
    forged = f"{bench.setup.prefix}forged"
    ours = bench.submit(programs.WAITS)
    names = [
        "a\nb\x1fc|d e",
        "\nbegins with a line end",
        f"x\n4711\x1fRUNNING\x1fNone\x1f0\x1f0\x1f1\x1f1\x1f1\x1fn1\x1fc\x1f{forged}\x1f",
        f"{bench.setup.prefix}has blanks",
        "ünïcödé ☃",
    ]
    for name in names:
        subprocess.run(
            ["sbatch", "--hold", "--output=/dev/null", f"--job-name={name}"],
            input="#!/bin/bash\ntrue\n",
            text=True,
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **slurm_cluster.environment},
        )
    try:
        assert [job.token for job in bench.dispatcher.observe().jobs if not job.state.terminal] == [ours.token]
    finally:
        bench.dispatcher.cancel([ours])
        slurm_cluster.command("scancel", "--state=PENDING", "--user=root")


def test_a_held_job_waits_for_a_person(bench: Bench, slurm_cluster: Cluster) -> None:
    ref = bench.submit(programs.ENDS_WELL, options=("--begin=now+1hour",))
    slurm_cluster.command("scontrol", "hold", ref.job_id)
    wait(lambda: bench.state(ref) is JobState.HELD, "the hold")
    assert "Held" in bench.seen(ref.token)[0].explanation
    assert "Held" in bench.dispatcher.explain(ref).text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": "nowhere"}, "nowhere"),
        ({"slots": 3, "slots_per_node": 3}, "node configuration is not available"),
        ({"options": ("--constraint=nosuchfeature",)}, "feature"),
        ({"options": ("--time=1", "--begin=yesterdayish")}, "begin"),
        ({"options": ("--partition=small",)}, "not configurable"),
        ({"options": ("--nodelist=n99",)}, "node"),
        ({"options": {"gpu_type": "h100"}}, "node configuration is not available"),
        ({"user": "somebody"}, "somebody"),
    ],
)
def test_submit_that_slurm_rejects_says_why(bench: Bench, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        bench.dispatcher.submit(bench.spec(**changes))


def test_an_impossible_job_that_slurm_accepts_is_seen_as_such(bench: Bench) -> None:
    spec = bench.spec(slots=20, slots_per_node=1)
    assert any("20" in sentence for sentence in bench.dispatcher.check(spec))
    ref = bench.dispatcher.submit(spec)
    wait(lambda: bench.seen(ref.token) and bench.seen(ref.token)[0].never, "the reason")
    assert bench.seen(ref.token)[0].reason in ("PartitionNodeLimit", "PartitionConfig")


def test_many_submits_at_once_give_one_job_each(bench: Bench) -> None:
    specs = [bench.spec(slots=0) for _ in range(30)]
    with ThreadPoolExecutor(8) as threads:
        refs = list(threads.map(bench.dispatcher.submit, specs))
    assert len({ref.job_id for ref in refs}) == 30
    listed = [job.token for job in bench.dispatcher.observe().jobs]
    assert all(listed.count(spec.token) == 1 for spec in specs)


def test_a_job_that_is_requeued_and_held_waits_for_a_person(bench: Bench, slurm_cluster: Cluster) -> None:
    ref = bench.submit(programs.STUBBORN)
    bench.ready(ref)
    slurm_cluster.command("scontrol", "update", f"JobId={ref.job_id}", "Requeue=1")
    slurm_cluster.command("scontrol", "requeuehold", ref.job_id)
    wait(lambda: bench.state(ref) is JobState.HELD, "the hold")
    assert "scontrol requeuehold" in bench.seen(ref.token)[0].explanation
    assert bench.seen(ref.token)[0].started_at is None


def test_the_time_limit_ends_a_job_that_was_warned_before(limited: Limited) -> None:
    bench = limited.bench
    assert bench.ended(limited.leaves, seconds=240).state is JobState.COMPLETED
    assert (bench.folder(limited.leaves) / "told").read_text() == "SIGUSR2"
    end = bench.ended(limited.stays, seconds=240)
    assert end.state is JobState.WALLTIME
    assert end.explanation == "The job reached its time limit."
