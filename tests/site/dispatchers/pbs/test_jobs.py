"""Jobs on a real PBS: several nodes, signals, endings, and what users see of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dispatcher_site import Bench, wait
from tests.support.pbs.site import PbsSite
from trainmaster.dispatchers.base import JobState, Setup, Signal
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.pbs import PbsDispatcher

pytestmark = pytest.mark.pbs

ON_EACH_NODE = """
import json, os, signal, sys, time
folder, rank, told = sys.argv[1], os.environ["TRAINMASTER_NODE_RANK"], []
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, lambda number, frame: told.append(signal.Signals(number).name))
open(folder + "/ready-" + rank, "w").close()
deadline = time.time() + 120
while not told and time.time() < deadline:
    time.sleep(0.02)
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
with open(folder + "/exit/" + rank + ".draft", "w") as record:
    json.dump({"told": told[:1], "environment": dict(os.environ)}, record)
os.rename(folder + "/exit/" + rank + ".draft", folder + "/exit/" + rank + ".json")
"""
# Ends its first rank's process alone, and leaves one in a session of its own behind, as a training would.
LEAVES_A_CHILD = """
import subprocess, sys
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
with open(sys.argv[1] + "/child", "w") as file:
    file.write(str(child.pid))
"""
# Where PBS makes the job's temporary folder; start.sh gives the training one in it.
TELLS_ITS_TEMPORARY_FOLDER = """
import os, sys
with open(sys.argv[1] + "/temporary", "w") as file:
    file.write(os.environ["TMPDIR"])
"""


@pytest.fixture
def two(setup: Setup, pbs_site: PbsSite) -> Iterator[Bench]:
    """For jobs of two nodes, on two hosts where this PBS has them."""
    options = {**setup.options, **pbs_site.two_nodes()}
    dispatcher = PbsDispatcher(Setup(setup.name, setup.prefix, setup.job_root, options))
    bench = Bench(dispatcher, setup, pbs_site.pool.name, pbs_site.pool.slot_type)
    yield bench
    bench.clean()
    dispatcher.close()


@pytest.mark.parametrize("signal", list(Signal))
def test_a_job_on_two_nodes_runs_and_is_signalled_on_both(two: Bench, signal: Signal) -> None:
    ref = two.submit(ON_EACH_NODE, slots=2, slots_per_node=1, options=("-l walltime=00:10:00",))
    two.ready(ref, files=2)
    wait(lambda: two.state(ref) is JobState.RUNNING, "the job to be shown as running")
    seen = two.seen(ref.token)[0]
    assert seen.ends_at == pytest.approx((seen.started_at or 0) + 600, abs=2)
    two.dispatcher.signal([ref], signal)
    assert two.ended(ref).state is JobState.COMPLETED
    records = {rank: json.loads(text) for rank, text in two.dispatcher.collect(ref.token).exits.items()}
    assert sorted(records) == [0, 1]
    for rank, record in records.items():
        told = record["environment"]
        assert record["told"] == [{Signal.PREEMPT: "SIGUSR2", Signal.TERMINATE: "SIGTERM"}[signal]]
        assert (told["TRAINMASTER_NODE_RANK"], told["TRAINMASTER_NUM_NODES"]) == (str(rank), "2")
        assert told["TRAINMASTER_JOB_ID"] == ref.job_id
        assert float(told["TRAINMASTER_END_TIME"]) == pytest.approx(time.time() + 600, abs=60)
    assert len(seen.nodes) in (1, 2)


def test_one_failing_node_ends_the_whole_job(two: Bench) -> None:
    program = "import os, sys, time\nif os.environ['TRAINMASTER_NODE_RANK'] == '1': sys.exit(7)\ntime.sleep(300)\n"
    ref = two.submit(program, slots=2, slots_per_node=1)
    end = two.ended(ref)
    assert (end.state, end.exit_code) == (JobState.FAILED, 7)
    assert "(rank 1) ended with status 7" in two.dispatcher.collect(ref.token).output_tail  # type: ignore[operator]


@pytest.mark.parametrize("way", ["pbs_tmrsh", "pbsdsh"])
def test_each_of_pbss_own_ways_to_another_host_works(setup: Setup, pbs_site: PbsSite, way: str) -> None:
    if pbs_site.pool.nodes < 2:
        pytest.skip("this PBS has one host")
    options = {**setup.options, "host_start": way}
    dispatcher = PbsDispatcher(Setup(setup.name, setup.prefix, setup.job_root, options))
    bench = Bench(dispatcher, setup, pbs_site.pool.name, pbs_site.pool.slot_type)
    ref = bench.submit("import os\nprint('rank', os.environ['TRAINMASTER_NODE_RANK'])\n", slots=2, slots_per_node=1)
    assert bench.ended(ref).state is JobState.COMPLETED
    output = dispatcher.collect(ref.token).output_tail
    assert "rank 0" in output  # type: ignore[operator]
    assert "rank 1" in output  # type: ignore[operator]


def test_processes_left_by_job_are_ended(bench: Bench) -> None:
    ref = bench.submit(LEAVES_A_CHILD)
    bench.ended(ref)
    pid = (bench.folder(ref) / "child").read_text()
    if not os.path.exists(f"/proc/{pid}") and os.uname().nodename not in bench.seen(ref.token)[0].nodes:
        pytest.skip("the job ran on another machine")
    wait(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the process that was left behind")


def test_pbs_removes_temporary_folder_of_job(bench: Bench, pbs_site: PbsSite) -> None:
    if not pbs_site.is_here():
        pytest.skip("the job runs on another machine")
    ref = bench.submit(TELLS_ITS_TEMPORARY_FOLDER)
    assert bench.ended(ref).state is JobState.COMPLETED
    told = Path((bench.folder(ref) / "temporary").read_text())
    made = [folder for folder in told.parents if folder.name == f"pbs.{ref.job_id}"]
    if not made:
        pytest.skip("this PBS makes no folder for temporary files")
    wait(lambda: not made[0].exists(), f"the end of {made[0]}")


def test_job_past_its_walltime_is_reported_as_such(bench: Bench) -> None:
    ref = bench.submit(programs.STUBBORN, options=("-l walltime=00:00:05",))
    end = bench.ended(ref, 120)
    assert end.state is JobState.WALLTIME
    assert "time limit" in end.explanation
    assert "time limit" in bench.dispatcher.explain(ref).text


def test_a_job_that_fits_itself_into_a_gap_knows_its_end(bench: Bench) -> None:
    limits = ("-l min_walltime=00:05:00", "-l max_walltime=00:20:00")
    ref = bench.submit(programs.TELLS, options=limits)
    end = bench.ended(ref)
    assert end.state is JobState.COMPLETED
    assert end.ends_at is not None
    told = json.loads(bench.dispatcher.collect(ref.token).exits[0])["environment"]
    assert float(told["TRAINMASTER_END_TIME"]) == pytest.approx(end.ends_at, abs=30)


def test_a_job_that_can_never_run_is_named(bench: Bench) -> None:
    ref = bench.submit(programs.ENDS_WELL, options=("-l select=mem=900tb",))
    wait(lambda: bench.seen(ref.token)[0].explanation, "the scheduler's comment", 180)
    seen = bench.seen(ref.token)[0]
    assert seen.never, seen
    assert "mem" in seen.explanation
    bench.dispatcher.cancel([ref])
    assert bench.ended(ref).state is JobState.CANCELLED


def test_waiting_job_explains_its_wait(bench: Bench) -> None:
    ref = bench.submit(
        programs.ENDS_WELL, options=(f"-a {time.strftime('%Y%m%d%H%M', time.localtime(time.time() + 86400))}",)
    )
    seen = bench.seen(ref.token)[0]
    assert (seen.state, seen.raw_state, seen.started_at) == (JobState.QUEUED, "W", None)
    assert "start time" in seen.explanation


def test_a_held_job_is_held(bench: Bench, pbs_site: PbsSite) -> None:
    later = time.strftime("%Y%m%d%H%M", time.localtime(time.time() + 86400))
    ref = bench.submit(programs.ENDS_WELL, options=(f"-a {later}",))
    pbs_site.command("qhold", ref.job_id)
    assert bench.state(ref) is JobState.HELD
    assert "qrls" in bench.seen(ref.token)[0].explanation
    assert "qrls" in bench.dispatcher.explain(ref).text


def test_a_job_that_a_person_deletes_names_the_person(bench: Bench, pbs_site: PbsSite) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    pbs_site.command("qdel", ref.job_id)
    end = bench.ended(ref)
    assert end.state is JobState.CANCELLED
    assert f"cancelled by {pbs_site.user}@" in end.explanation


def test_other_peoples_jobs_are_shown_and_forge_nothing(bench: Bench, pbs_site: PbsSite) -> None:
    ours = bench.submit(programs.WAITS)
    forged = f"{bench.setup.prefix}forged"
    # Line ends in a variable and an account name: `qstat -f` prints a record of their own making.
    lie = f"x\nJob Id: 1.{ours.job_id.partition('.')[2]}\n    Job_Name = {forged}\n    job_state = R"
    other = pbs_site.command(
        "qsub", "-f", "-h", "-N", "somebody", "-q", bench.pool, "-A", lie, "--", "/bin/sleep", "1"
    ).strip()  # fmt: skip
    try:
        snapshot = bench.dispatcher.observe()
        assert forged not in {job.token for job in snapshot.jobs}
        assert ours.token in {job.token for job in snapshot.jobs}
        shown = {job.job_id: job for job in snapshot.external}
        assert shown[other].name == "somebody"
        assert (shown[other].user, shown[other].pool, shown[other].state) == (
            pbs_site.user,
            bench.pool,
            JobState.HELD,
        )
        assert ours.job_id not in shown
    finally:
        pbs_site.command("qdel", other)


def test_new_dispatcher_still_sees_ended_jobs(bench: Bench, setup: Setup) -> None:
    ref = bench.submit(programs.ENDS_WELL)
    bench.ended(ref)
    again = PbsDispatcher(setup)
    (seen,) = [job for job in again.observe().jobs if job.token == ref.token]
    assert (seen.state, seen.job_id) == (JobState.COMPLETED, ref.job_id)
    again.close()


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_other_forms_serve_too(bench: Bench, setup: Setup, form: str) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    options = {**setup.options, "query_format": form}
    dispatcher = PbsDispatcher(Setup(setup.name, setup.prefix, setup.job_root, options))
    (seen,) = [job for job in dispatcher.observe().jobs if job.token == ref.token]
    assert seen.job_id == ref.job_id
    assert [pool.name for pool in dispatcher.pools()] == [pool.name for pool in bench.dispatcher.pools()]
    dispatcher.cancel([ref])
    end = Bench(dispatcher, setup, bench.pool).ended(ref)
    assert end.state is JobState.CANCELLED
    assert dispatcher.explain(ref).state is JobState.CANCELLED
    dispatcher.close()
