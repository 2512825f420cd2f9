"""Preemption by a scheduler: for an urgent job, or because an administrator requeues a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import trainings
from tests.support.cluster.preemption import PreemptingCluster
from tests.support.cluster.slurm import preempting_cluster
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    validations,
    wait_for,
)
from tests.support.slurm.site import make_slurm_master
from trainmaster.client.master import Master

__all__ = ["preempting_cluster"]

pytestmark = [pytest.mark.slurm, pytest.mark.ring]
EPOCHS = 12
HELD = "The trial waits with it, and continues in another attempt when the job is released"
IN_WORDS = "The scheduler takes the job's resources for a job of higher priority"


@pytest.fixture(scope="module")
def process(preempting_cluster: PreemptingCluster) -> Iterator[MasterProcess]:
    folder = make_folder()
    nothing = Path("/bin/true")  # jobs run without a container, with the nodes' own Python
    process = make_slurm_master(folder, preempting_cluster, nothing, nothing, container="none")
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


def begin(master: Master, pool: str, **hparams: Any) -> tuple[int, str, str]:
    """An experiment whose only trial reports: its number, the Slurm job, the node."""
    keys = {"resources": {"resource_pool": pool}}
    text = trainings.experiment(epochs=EPOCHS, save_at=2, stay_at=4, keys=keys, **hparams)
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 4 for t in master.trials(number)), "the trial to report", 90)
    nodes = wait_for(lambda: allocations(master, number)[0]["nodes"], "the scheduler to be looked at")
    return number, str(allocations(master, number)[0]["jobId"]), nodes[0]


def allocations(master: Master, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = master.task(only_trial(master, number).task_id)["allocations"]
    return found


def urgent(cluster: PreemptingCluster, node: str) -> str:
    """Another user's job of higher priority, which wants the whole node for a moment."""
    argv = ["sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--partition=urgent", "--exclusive",
            f"--nodelist={node}"]  # fmt: skip
    done = cluster.run_as("tmbob", argv, stdin="#!/bin/sh\nsleep 1\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def went_on_once(master: Master, number: int) -> str:
    """Every epoch was reported exactly once, and nothing was charged; the trial's log."""
    ended_as(master, number, "COMPLETED", 120)
    trial = only_trial(master, number)
    text = log_text(master, trial.id)
    assert (trial.restarts, trial.attempts, trial.batches) == (0, 2, EPOCHS), text
    assert validations(master, [trial.id])[trial.id] == list(range(1, EPOCHS + 1))
    return text


@pytest.mark.parametrize("pool", ["requeued", "cancelled"])
def test_preempted_trial_saves_and_resumes(
    process: MasterProcess, preempting_cluster: PreemptingCluster, pool: str
) -> None:
    master = process.client()
    number, job, node = begin(master, pool)
    taker = urgent(preempting_cluster, node)
    text = went_on_once(master, number)
    assert f"{IN_WORDS}: it is asked to save its work and leave" in text, text
    left = int(text.partition("leaving after epoch ")[2].split()[0])
    assert 4 <= left < EPOCHS
    assert f"starting after epoch {left}" in text
    wait_for(lambda: "JobState=COMPLETED" in shown(preempting_cluster, taker), "the end of the urgent job")
    assert allocations(master, number)[1]["jobId"] != job


def test_trial_that_does_not_leave_in_time_is_not_charged(
    process: MasterProcess, preempting_cluster: PreemptingCluster
) -> None:
    master = process.client()
    number, _, node = begin(master, "sudden", deaf=True)
    urgent(preempting_cluster, node)
    ended_as(master, number, "COMPLETED", 120)
    trial = only_trial(master, number)
    text = log_text(master, trial.id)
    assert (trial.restarts, trial.attempts, trial.batches) == (0, 2, EPOCHS), text
    assert "for a job of higher priority" in text
    assert "starting after epoch 2" in text


def test_a_job_that_an_administrator_requeues_is_not_run_twice(
    process: MasterProcess, preempting_cluster: PreemptingCluster
) -> None:
    master, cluster = process.client(), preempting_cluster
    number, job, _ = begin(master, "main")
    cluster.command("scontrol", "update", f"JobId={job}", "Requeue=1")  # we ask for none
    cluster.command("scontrol", "requeue", job)
    wait_for(lambda: "RestartCnt=1" in shown(cluster, job) or "Restarts=1" in shown(cluster, job), "the requeue")
    # Slurm waits two minutes before it starts a requeued job again; this one shall come while its end is being judged.
    # In the very second of the requeue it could not: its credential is still revoked, and Slurm gives the job up.
    wait_for(lambda: "JobState=PENDING" in shown(cluster, job), "the job back in the queue")
    cluster.command("scontrol", "update", f"JobId={job}", "StartTime=now+1")
    text = went_on_once(master, number)
    assert text.count("starting after epoch") == 2
    wait_for(lambda: "JobState=COMPLETED" in shown(cluster, job), "the end of the job that nobody wants any more")


def test_trial_of_held_job_waits_until_release_or_pause(
    process: MasterProcess, preempting_cluster: PreemptingCluster
) -> None:
    master, cluster = process.client(), preempting_cluster
    released, paused = held(master, cluster), held(master, cluster)
    until = time.monotonic() + 8.0  # longer than it takes to judge how an attempt has ended
    while time.monotonic() < until:
        assert [len(allocations(master, number)) for number, _ in (released, paused)] == [1, 1]
        time.sleep(0.5)
    cluster.command("scontrol", "release", released[1])
    text = went_on_once(master, released[0])
    assert text.count("starting after epoch") == 2
    assert len(allocations(master, paused[0])) == 1
    master.pause(paused[0])
    wait_for(lambda: "JobState=CANCELLED" in shown(cluster, paused[1]), "the end of the job", 90)
    wait_for(lambda: allocations(master, paused[0])[0].get("endTime"), "the end of the attempt", 90)
    master.activate(paused[0])
    went_on_once(master, paused[0])


def held(master: Master, cluster: PreemptingCluster) -> tuple[int, str]:
    """An experiment whose trial waits because its job is held: its number, the Slurm job."""
    number, job, _ = begin(master, "main")
    cluster.command("scontrol", "update", f"JobId={job}", "Requeue=1")  # we ask for none
    cluster.command("scontrol", "requeuehold", job)
    wait_for(lambda: HELD in log_text(master, only_trial(master, number).id), "the trial to wait", 90)
    return number, job


def shown(cluster: PreemptingCluster, job: str) -> str:
    return cluster.run("scontrol", "-o", "show", "job", job).stdout
