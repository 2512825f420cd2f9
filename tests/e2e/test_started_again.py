"""A scheduler that restarts a job under its old id, without a trace of the first run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
from tests.support.faults import site
from tests.support.master import log_text, only_trial, wait_for

__all__ = ["slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.slow]
EPOCHS = 12


@pytest.fixture
def closed(slurm_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with its partition closed: jobs wait."""
    slurm_cluster.command("scontrol", "update", "PartitionName=main", "State=DOWN")
    yield slurm_cluster
    slurm_cluster.start_controller()
    slurm_cluster.command("scontrol", "update", "PartitionName=main", "State=UP")
    slurm_cluster.run("scontrol", "update", f"NodeName={','.join(slurm_cluster.layout.nodes)}", "State=RESUME")
    slurm_cluster.wait_for_nodes()


def test_a_controller_with_an_old_state_does_not_have_a_training_run_twice(closed: Cluster, tmp_path: Path) -> None:
    """What a crash right after a start does, and a state folder that was put back from a copy."""
    state = closed.layout.run / "state"
    with site(closed) as spoiled:
        master = spoiled.start()
        number = spoiled.create(master, epochs=EPOCHS, save_at=2, stay_at=4, deaf=True)
        name = wait_for(lambda: spoiled.folders(master, number), "the job's folder").popitem()[1].name
        job = wait_for(lambda: closed.command("squeue", "-h", "-n", name, "-o", "%i").strip(), "the job in the queue")
        wait_for(lambda: copied(closed, tmp_path / "old", name), "the controller to save its state", every=0.5)
        closed.command("scontrol", "update", "PartitionName=main", "State=UP")
        spoiled.reports(master, number, 1, steps=4)

        closed.controller.kill()
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "old", state)
        closed.start_controller()
        closed.wait_for_nodes()
        closed.command("scontrol", "update", "PartitionName=main", "State=UP")
        trial = only_trial(master, number).id
        # A second run that comes while its node still ends the first one is refused by slurmd itself (its credential is
        # revoked): then the first run was taken down, and nothing came after it.
        told = ("started the job again", "ended from outside")
        wait_for(lambda: any(s in log_text(master, trial) for s in told), f"the second run of job {job}", 120)
        spoiled.nothing_is_lost_or_doubled(master, number, epochs=EPOCHS, attempts=2)
        assert "starting after epoch 2" in log_text(master, trial)


def copied(cluster: Cluster, copy: Path, job: str) -> bool:
    """Copy the controller's state as it is at one moment. Whether the job is in it: the controller may just be putting
    another file in the place of the last one."""
    shutil.rmtree(copy, ignore_errors=True)
    cluster.pause_controller()
    try:
        shutil.copytree(cluster.layout.run / "state", copy)
    finally:
        cluster.resume_controller()
    saved = copy / "job_state"
    return saved.exists() and job.encode() in saved.read_bytes()
