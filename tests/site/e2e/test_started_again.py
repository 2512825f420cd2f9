"""A scheduler that lost its memory: it starts jobs again, and gives their numbers to others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
from tests.support.faults import site
from tests.support.master import log_text, only_trial, wait_for
from tests.support.slurm.site import USER

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


def test_controller_with_old_state_runs_no_training_twice(closed: Cluster, tmp_path: Path) -> None:
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


@pytest.fixture
def one_node(closed: Cluster) -> Iterator[Cluster]:
    """The cluster of which only the first node takes jobs. The node keeps an ended job as long as a file is there."""
    epilog = closed.layout.run / "epilog"
    epilog.write_text(f"#!/bin/sh\nfor i in $(seq 900); do [ -e {lingering(closed)} ] || exit 0; sleep 0.1; done\n")
    epilog.chmod(0o755)
    with closed.layout.slurm_conf.open("a") as settings:
        settings.write(f"Epilog={epilog}\n")
    closed.command("scontrol", "reconfigure")
    others = f"NodeName={','.join(closed.layout.nodes[1:])}"
    closed.command("scontrol", "update", others, "State=DRAIN", "Reason=test")
    closed.command("scontrol", "update", "PartitionName=main", "State=DOWN")
    yield closed
    lingering(closed).unlink(missing_ok=True)
    closed.start_controller()
    closed.set_min_job_age()


def lingering(cluster: Cluster) -> Path:
    return cluster.layout.run / "lingering"


def test_jobs_refused_by_node_cost_trials_no_restart(one_node: Cluster, tmp_path: Path) -> None:
    """slurmctld starts a job again that runs, and gives the number of one that runs to a new job. slurmd answers
    "already running, do not launch second copy ... Could not launch job and not able to requeue it, cancelling job", as
    root and without a reason: for Slurm both are CANCELLED, as by an administrator's scancel."""
    cluster, state = one_node, one_node.layout.run / "state"
    with site(cluster) as spoiled:
        master = spoiled.start()
        ran = spoiled.create(master, epochs=EPOCHS, save_at=2, stay_at=4, deaf=True)
        name = wait_for(lambda: spoiled.folders(master, ran), "the job's folder").popitem()[1].name
        wait_for(lambda: cluster.command("squeue", "-h", "-n", name).strip(), "the job in the queue")
        wait_for(lambda: copied(cluster, tmp_path / "old", name), "the controller to save its state", every=0.5)
        cluster.command("scontrol", "update", "PartitionName=main", "State=UP")
        sbatch = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp"]
        taken = cluster.run_as(USER, sbatch, stdin="#!/bin/sh\nexec sleep 600\n").stdout.strip()
        spoiled.reports(master, ran, 1, steps=4)
        wait_for(lambda: cluster.command("squeue", "-h", "-j", taken, "-t", "R").strip(), "the other job to run")

        cluster.controller.kill()
        lingering(cluster).touch()
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "old", state)
        cluster.start_controller()
        new = spoiled.create(master, epochs=3)
        name_of_new = wait_for(lambda: spoiled.folders(master, new), "the new job's folder").popitem()[1].name
        queued = ("squeue", "-h", "-t", "all", "-n", f"{name},{name_of_new}", "-o", "%i %T")
        wait_for(lambda: f"{taken} PENDING" in cluster.command(*queued), "the new job under the other's number")
        cluster.command("scontrol", "update", "PartitionName=main", "State=UP")
        wait_for(lambda: cluster.command(*queued).count("COMPLETING") == 2, "the node to refuse both", 60)
        lingering(cluster).unlink()
        others = f"NodeName={','.join(cluster.layout.nodes[1:])}"
        cluster.command("scontrol", "update", others, "State=RESUME")
        spoiled.nothing_is_lost_or_doubled(master, ran, epochs=EPOCHS, attempts=2)
        spoiled.nothing_is_lost_or_doubled(master, new, epochs=3, attempts=2)
        told = [log_text(master, only_trial(master, number).id) for number in (ran, new)]
        assert "starting after epoch 2" in told[0]
        for text, why in zip(told, ("started the job a second time", "never started its script"), strict=True):
            assert why in text
            assert "no restart is charged" in text


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
