"""A site with accounting: ends of jobs that the controller forgot, limits, and a slurmdbd that is away."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.site.dispatchers.slurm.conftest import slurm_setup
from tests.support.cluster.accounting import AccountedCluster
from tests.support.cluster.slurm import accounted_cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import Canceller, DispatcherError, JobRef, JobState, Rejected, Transient
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.slurm import SlurmDispatcher

__all__ = ["accounted_cluster"]

pytestmark = pytest.mark.slurm

EATS_MEMORY = "x = bytearray(400 << 20)\nprint(len(x))\n"
FAILS = "raise SystemExit(7)\n"


@pytest.fixture(scope="module")
def bench(accounted_cluster: AccountedCluster) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir=accounted_cluster.layout.job_root) as folder:
        setup = slurm_setup(accounted_cluster, Path(folder), "acct-")
        dispatcher = SlurmDispatcher(setup)
        yield Bench(dispatcher, setup)
        Bench(dispatcher, setup).clean()
        dispatcher.close()


@dataclass(frozen=True)
class Ended:
    """Jobs that ended in every way, by how; the controller has forgotten them all."""

    refs: dict[str, JobRef]
    operator: int  # uid of the one who cancelled


@pytest.fixture(scope="module")
def ended(bench: Bench, accounted_cluster: AccountedCluster) -> Ended:
    cluster = accounted_cluster
    first, second = cluster.layout.nodes
    here, there = (f"--nodelist={first}",), (f"--nodelist={second}",)
    refs = {
        "walltime": bench.submit(programs.STUBBORN, options=here, slots=0, walltime_grace=1),
        "root": bench.submit(programs.WAITS, options=here, slots=0),
        "operator": bench.submit(programs.WAITS, options=here, slots=0),
        "node": bench.submit(programs.STUBBORN, options=there, slots=0),
    }
    for ref in refs.values():
        bench.ready(ref)
    cluster.command("scontrol", "update", f"JobId={refs['walltime'].job_id}", "EndTime=now+1")
    cluster.command("scancel", refs["root"].job_id)
    cluster.command("sacctmgr", "-i", "modify", "user", "where", "name=tmbob", "set", "adminlevel=operator")
    cancel = ["scancel", refs["operator"].job_id]
    wait(lambda: cluster.run_as("tmbob", cancel).returncode == 0, "an operator's power to cancel")
    cluster.kill_node(second)
    for name, program, options in (
        ("memory", EATS_MEMORY, ("--mem=100M",)),
        ("status", FAILS, ()),
        ("done", programs.ENDS_WELL, ()),
    ):
        refs[name] = bench.submit(program, options=(*here, *options), slots=0)

    def forgotten() -> bool:
        listed = set(cluster.command("squeue", "-h", "-t", "all", "-o", "%A").split())
        return not listed & {ref.job_id for ref in refs.values()}

    wait(forgotten, "the controller to forget all jobs", 240)
    cluster.restore_node(second)
    return Ended(refs, int(cluster.run_as("tmbob", ["id", "-u"]).stdout))


def test_the_probe_finds_accounting(bench: Bench) -> None:
    found = bench.dispatcher.probe()
    assert found.accounting is True
    # The controller forgets after 2 s, but accounting does not: nothing to complain of.
    assert not [problem for problem in found.problems if "MinJobAge" in problem.text]


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("walltime", JobState.WALLTIME, "The job reached its time limit."),
        ("root", JobState.CANCELLED, "The job was cancelled by uid 0 (root)."),
        ("operator", JobState.CANCELLED, "The job was cancelled by uid {operator} (tmbob)."),
        ("node", JobState.INFRASTRUCTURE, "A node of the job failed on {node}."),
        ("memory", JobState.OUT_OF_MEMORY, "The job used more memory than it had asked for"),
        ("status", JobState.FAILED, "The job ended with status 7 on"),
        ("done", JobState.COMPLETED, "The job ended with status 0."),
    ],
)
def test_how_a_forgotten_job_ended(
    bench: Bench, ended: Ended, accounted_cluster: AccountedCluster, name: str, state: JobState, words: str
) -> None:
    told = bench.dispatcher.explain(ended.refs[name])
    assert told.state is state
    assert words.format(operator=ended.operator, node=accounted_cluster.layout.nodes[1]) in told.text
    assert (told.canceller is Canceller.PERSON) == (name == "operator")  # Slurm itself acts as root, too
    assert told.script_began is (True if state is JobState.CANCELLED else None)
    assert told.exit_code == (7 if name == "status" else 0 if name == "done" else told.exit_code)


def test_job_with_reused_number_is_not_mistaken(bench: Bench, ended: Ended) -> None:
    """Numbers start again when a cluster loses its state; accounting then knows two jobs by one."""
    told = bench.dispatcher.explain(JobRef("acct-never-was", ended.refs["status"].job_id))
    assert told.state is JobState.UNKNOWN
    assert "does not remember" in told.text


def test_a_full_account_parks_the_submit_until_there_is_room(bench: Bench, accounted_cluster: AccountedCluster) -> None:
    accounted_cluster.limit("root", MaxSubmitJobs=1)
    try:
        first = bench.submit(programs.WAITS, slots=0)
        spec = bench.spec(slots=0)
        with pytest.raises(Transient, match="no more jobs in the queue until some of them end") as caught:
            bench.dispatcher.submit(spec)
        assert "AssocMaxSubmitJobLimit" in str(caught.value)
        bench.ready(first)
        bench.dispatcher.cancel([first])
        bench.ended(first)
        ref = bench.dispatcher.submit(spec)
    finally:
        accounted_cluster.limit("root", MaxSubmitJobs=-1)
    assert bench.ended(ref).state is JobState.COMPLETED


def test_a_job_above_the_accounts_limit_waits_and_says_why(bench: Bench, accounted_cluster: AccountedCluster) -> None:
    accounted_cluster.limit("root", MaxJobs=1)
    try:
        first, second = (bench.submit(programs.WAITS, slots=0) for _ in range(2))
        wait(lambda: bench.seen(second.token)[0].reason == "AssocMaxJobsLimit", "the reason")
        waiting = bench.seen(second.token)[0]
        assert (waiting.state, waiting.never) == (JobState.QUEUED, False)
        assert waiting.explanation == "Waits because of a limit of its account (AssocMaxJobsLimit)."
    finally:
        accounted_cluster.limit("root", MaxJobs=-1)
    bench.dispatcher.cancel([first, second])


@pytest.mark.parametrize("option", ["--account=nosuch", "--qos=nosuch"])
def test_an_account_that_does_not_exist_is_the_users_fault(bench: Bench, option: str) -> None:
    with pytest.raises(Rejected, match=option[2:].partition("=")[0]):
        bench.submit(programs.ENDS_WELL, options=(option,), slots=0)


@pytest.mark.parametrize("how", ["ended", "paused"])
def test_dispatcher_works_while_accounting_is_unreachable(
    bench: Bench, ended: Ended, accounted_cluster: AccountedCluster, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.dispatchers.slurm.client.ACCOUNTS_DEADLINE", 8.0)
    again = SlurmDispatcher(bench.setup)  # it has not learnt yet that accounting is away
    if how == "ended":
        accounted_cluster.accountant.stop()
    else:
        accounted_cluster.accountant.send(signal.SIGSTOP)
    try:
        for _ in range(2):
            begun = time.monotonic()
            with pytest.raises(DispatcherError):  # not "no such job": the master asks again later
                again.explain(ended.refs["status"])
            assert time.monotonic() - begun < 60
        assert time.monotonic() - begun < 7.0  # the second time it is not even asked

        def told() -> bool:
            """What the controller says of a job that has just ended: it forgets within seconds."""
            ref = again.submit(bench.spec(FAILS, slots=0))
            wait(lambda: all(job.state.terminal for job in bench.seen(ref.token)), "the end of the job")
            with contextlib.suppress(DispatcherError):
                return again.explain(ref).exit_code == 7
            return False

        wait(told, "an answer by a controller that still knows", 240)
        assert again.probe().accounting is True
    finally:
        accounted_cluster.accountant.send(signal.SIGCONT)
        accounted_cluster.start_accountant()
        again.close()
    fresh = SlurmDispatcher(bench.setup)
    assert fresh.explain(ended.refs["status"]).exit_code == 7
    fresh.close()
