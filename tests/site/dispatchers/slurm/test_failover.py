"""Failing controllers: a backup takes over, and one that lost its state restarts its job ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.site.dispatchers.slurm.conftest import slurm_setup
from tests.support.cluster.failover import SPARE, FailoverCluster
from tests.support.cluster.slurm import failover_cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import (
    Ambiguous,
    DispatcherError,
    JobRef,
    JobState,
    Signal,
    Snapshot,
    Transient,
    Unreachable,
)
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.slurm import SlurmDispatcher

__all__ = ["failover_cluster"]

pytestmark = [pytest.mark.slurm, pytest.mark.ring]


@pytest.fixture
def bench(failover_cluster: FailoverCluster) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir=failover_cluster.layout.job_root) as folder:
        setup = slurm_setup(failover_cluster, Path(folder), "fail-")
        dispatcher = SlurmDispatcher(setup)
        bench = Bench(dispatcher, setup)
        yield bench
        bench.clean()
        dispatcher.close()


def test_backup_controller_takes_over_during_submits_and_looks(bench: Bench, failover_cluster: FailoverCluster) -> None:
    assert failover_cluster.pings()[SPARE]
    running = bench.submit(programs.WAITS, slots=0)
    bench.ready(running)
    specs = [bench.spec(slots=0) for _ in range(6)]

    def submit(number: int) -> JobRef | DispatcherError:
        if number == 2:
            failover_cluster.controller.kill()
        try:
            return bench.dispatcher.submit(specs[number])
        except (Ambiguous, Transient, Unreachable) as error:  # never Rejected: it is nobody's fault
            return error

    def look(_: int) -> Snapshot | None:
        try:
            return bench.dispatcher.observe()
        except (Transient, Unreachable):
            return None

    with ThreadPoolExecutor(3) as threads:
        looks = threads.submit(lambda: [look(number) for number in range(4)])
        answers = list(threads.map(submit, range(6)))
    taken = [answer for answer in answers if isinstance(answer, JobRef)]
    assert taken
    for snapshot in filter(None, looks.result()):
        assert running.token in {job.token for job in snapshot.jobs}
    # The spare one knows the job that ran, and what it took itself or inherited: each token at most once.
    wait(lambda: look(0) is not None, "the spare controller")
    assert bench.seen(running.token)[0].job_id == running.job_id
    assert bench.seen(running.token)[0].state is JobState.RUNNING
    for ref in taken:
        assert [job.job_id for job in bench.seen(ref.token)] == [ref.job_id]
    for answer, spec in zip(answers, specs, strict=True):
        if isinstance(answer, (Transient, Unreachable)):  # nothing happened, so it may be asked for again
            assert bench.seen(spec.token) == []
            bench.dispatcher.submit(spec)
            assert len(bench.seen(spec.token)) == 1
    bench.dispatcher.signal([running], Signal.PREEMPT)
    assert bench.ended(running).state is JobState.COMPLETED
    assert bench.dispatcher.explain(running).state is JobState.COMPLETED


def test_a_controller_that_lost_its_state_confuses_no_jobs(bench: Bench, failover_cluster: FailoverCluster) -> None:
    failover_cluster.lose_state()
    first = bench.submit(programs.WAITS, slots=0)
    bench.ready(first)
    assert first.job_id == "1"
    failover_cluster.lose_state()
    second = bench.submit(programs.WAITS, slots=0)
    bench.ready(second)
    assert second.job_id == first.job_id
    assert bench.seen(first.token) == []
    told = bench.dispatcher.explain(first)
    assert told.state is JobState.UNKNOWN
    assert "does not remember" in told.text
    bench.dispatcher.cancel([first])
    bench.dispatcher.signal([first], Signal.TERMINATE)
    bench.dispatcher.signal([second], Signal.PREEMPT)
    assert bench.ended(second).state is JobState.COMPLETED
    assert (bench.folder(second) / "told").read_text() == "SIGUSR2"
