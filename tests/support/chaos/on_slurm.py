"""Faults of a Slurm cluster: its controller, its nodes, its administrators, its commands, the disk of job folders."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from random import Random

from tests.support.chaos.kinds import Kinds, NothingToHit, long
from tests.support.chaos.site import filled
from tests.support.chaos.slurm_site import SlurmSite

ON_SLURM = Kinds()
# What scontrol says of a job that has ended, or was requeued, before it could be released or resumed.
GONE = "nvalid job id|already finished|already complet|not suspended|not running|pending|disabled"


# -- the controller ----------------------------------------------------------------------------------------


@ON_SLURM.kind("controller")
def controller_frozen(site: SlurmSite, dice: Random) -> str:
    """SIGSTOP to slurmctld, SIGCONT after a while: commands time out, and may have had their effect."""
    site.cluster.pause_controller()
    try:
        seconds = site.hold(long(dice))
    finally:
        site.cluster.resume_controller()
    return f"{seconds:.1f} s"


@ON_SLURM.kind("controller")
def controller_stopped(site: SlurmSite, dice: Random) -> str:
    """slurmctld is ended cleanly and started again after a while."""
    site.cluster.stop_controller()
    try:
        seconds = site.hold(dice.uniform(0.5, 5.0))
    finally:
        site.cluster.start_controller()
    return f"{seconds:.1f} s"


@ON_SLURM.kind("controller")
def controller_killed(site: SlurmSite, dice: Random) -> str:
    """SIGKILL to slurmctld, which comes back with the state that it saved last."""
    site.cluster.controller.kill()
    try:
        seconds = site.hold(dice.uniform(0.0, 6.0))
    finally:
        site.cluster.start_controller()
    return f"{seconds:.1f} s"


@ON_SLURM.kind("controller", "nodes")
def controller_with_an_older_state(site: SlurmSite, dice: Random) -> str:
    """The folder of slurmctld's state is copied; later slurmctld is killed and started with the copy."""
    state, copy = site.cluster.layout.run / "state", site.folder / "older-state"
    shutil.rmtree(copy, ignore_errors=True)
    site.cluster.pause_controller()
    try:
        shutil.copytree(state, copy)
    finally:
        site.cluster.resume_controller()
    seconds = site.hold(dice.uniform(0.5, 5.0))
    site.cluster.controller.kill()
    try:
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        state.chmod(0o700)
    finally:
        site.cluster.start_controller()
    # A node that was asked to start a second copy of a job is drained by Slurm; an administrator resumes it.
    site.hold(dice.uniform(4.0, 8.0))
    for node in site.cluster.layout.nodes:
        site.resume(node)
    return f"{seconds:.1f} s older"


# -- administrators ----------------------------------------------------------------------------------------


@ON_SLURM.kind("a job")
def job_requeued(site: SlurmSite, dice: Random) -> str:
    """An administrator allows a job to be requeued, and requeues it."""
    job = _job(site, dice)
    site.cluster.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    _did(site.cluster.run("scontrol", "requeue", job))
    return f"job {job}"


@ON_SLURM.kind("a job")
def job_requeued_and_held(site: SlurmSite, dice: Random) -> str:
    """An administrator requeues a job and holds it, and releases it after a while."""
    job = _job(site, dice)
    site.cluster.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    _did(site.cluster.run("scontrol", "requeuehold", job))
    try:
        seconds = site.hold(dice.uniform(0.5, 4.0))
    finally:
        site.administer("release", job, gone=GONE)
    return f"job {job}, {seconds:.1f} s"


@ON_SLURM.kind("a job")
def job_suspended(site: SlurmSite, dice: Random) -> str:
    """An administrator suspends a job, and resumes it after a while."""
    job = _job(site, dice)
    _did(site.cluster.run("scontrol", "suspend", job))
    try:
        seconds = site.hold(dice.uniform(0.5, 4.0))
    finally:
        site.administer("resume", job, gone=GONE)
    return f"job {job}, {seconds:.1f} s"


@ON_SLURM.kind("a job")
def job_cancelled(site: SlurmSite, dice: Random) -> str:
    """root removes a job with scancel: there is no accounting, and only this may end a trial as cancelled."""
    running = site.running()
    job = _job(site, dice)
    named = site.rows("SELECT id FROM allocations WHERE token = %(token)s", token=running.get(job, ""))
    site.cancelled |= {row["id"] for row in named}
    _did(site.cluster.run("scancel", job))
    return f"job {job}, {', '.join(row['id'] for row in named)}"


@ON_SLURM.kind("partition")
def partition_closed(site: SlurmSite, dice: Random) -> str:
    """An administrator closes the partition, and opens it after a while."""
    _did(site.cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN"))
    try:
        seconds = site.hold(dice.uniform(0.5, 5.0))
    finally:
        site.administer("update", "PartitionName=main", "State=UP")
    return f"{seconds:.1f} s"


# -- nodes -------------------------------------------------------------------------------------------------


@ON_SLURM.kind("nodes")
def node_down(site: SlurmSite, dice: Random) -> str:
    """An administrator sets a node down, which ends its jobs, and resumes it after a while."""
    return _set_aside(site, dice, "DOWN")


@ON_SLURM.kind("nodes")
def node_drained(site: SlurmSite, dice: Random) -> str:
    """An administrator drains a node, and resumes it after a while."""
    return _set_aside(site, dice, "DRAIN")


def _set_aside(site: SlurmSite, dice: Random, state: str) -> str:
    node = dice.choice(site.cluster.layout.nodes)
    _did(site.cluster.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=chaos"))
    try:
        seconds = site.hold(dice.uniform(0.5, 5.0))
    finally:
        site.resume(node)
    return f"{node}, {seconds:.1f} s"


@ON_SLURM.kind("nodes")
def slurmd_killed(site: SlurmSite, dice: Random) -> str:
    """SIGKILL to a node's slurmd, whose jobs run on; it is started again, sometimes after SlurmdTimeout."""
    node = dice.choice(site.cluster.layout.nodes)
    site.cluster.node_daemon(node).kill()
    try:
        seconds = site.hold(dice.choice([dice.uniform(0.5, 4.0), dice.uniform(0.5, 4.0), dice.uniform(11.0, 16.0)]))
    finally:
        site.cluster.start_node(node)
    return f"{node}, {seconds:.1f} s"


@ON_SLURM.kind("nodes")
def node_lost_its_power(site: SlurmSite, dice: Random) -> str:
    """SIGKILL to a node's slurmd and to every process of its jobs; it is started again."""
    node = dice.choice(site.cluster.layout.nodes)
    try:
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            site.cluster.kill_node(node)
        seconds = site.hold(dice.uniform(0.5, 6.0))
    finally:
        site.cluster.start_node(node)
        site.resume(node)
    return f"{node}, {seconds:.1f} s"


@ON_SLURM.kind("nodes")
def node_cut_off(site: SlurmSite, dice: Random) -> str:
    """A firewall rule drops what the controller and others send to a node's slurmd, sometimes past SlurmdTimeout."""
    node = dice.choice(site.cluster.layout.nodes)
    rule = ["INPUT", "-i", "lo", "-p", "tcp", "--dport", str(site.cluster.layout.node_port(node)), "-j", "DROP"]
    subprocess.run(["iptables", "-w", "-I", *rule], check=True, capture_output=True)
    try:
        seconds = site.hold(dice.choice([dice.uniform(0.5, 4.0), dice.uniform(0.5, 4.0), dice.uniform(11.0, 16.0)]))
    finally:
        subprocess.run(["iptables", "-w", "-D", *rule], check=True, capture_output=True)
    return f"{node}, {seconds:.1f} s"


# -- commands ----------------------------------------------------------------------------------------------

LIES = ("empty", "garbage", "thinned 3", "thinned 2", "truncated 900", "shortened 3", "strange", "forgetful")


@ON_SLURM.kind("squeue")
def squeue_lies(site: SlurmSite, dice: Random) -> str:
    """squeue answers nothing, something else, a part, without some of the jobs, or in words that nobody knows."""
    lie = dice.choice(LIES)
    how, _, value = lie.partition(" ")
    with site.wrapped.spoiled(how, value):
        seconds = site.hold(dice.uniform(0.5, 5.0))
    return f"{lie}, {seconds:.1f} s"


@ON_SLURM.kind("squeue")
def squeue_shows_the_past(site: SlurmSite, dice: Random) -> str:
    """squeue repeats its last answer, made to look new."""
    if not (site.wrapped.folder / "last.squeue").exists():
        raise NothingToHit
    site.wrapped.keep()
    with site.wrapped.spoiled("stale"):
        seconds = site.hold(dice.uniform(0.5, 5.0))
    return f"{seconds:.1f} s"


@ON_SLURM.kind("squeue")
def squeue_fails(site: SlurmSite, dice: Random) -> str:
    """squeue ends with an error."""
    with site.wrapped.spoiled("refuses", "Unable to contact slurm controller (connect failure)"):
        seconds = site.hold(dice.uniform(0.5, 5.0))
    return f"{seconds:.1f} s"


@ON_SLURM.kind("squeue")
def squeue_hangs(site: SlurmSite, dice: Random) -> str:
    """squeue does not answer for a while."""
    seconds = dice.uniform(2.0, 8.0)
    with site.wrapped.spoiled("hangs", f"{seconds:.0f}"):
        site.hold(seconds / 2)
    return f"{seconds:.1f} s"


@ON_SLURM.kind("sbatch")
def sbatch_without_an_answer(site: SlurmSite, dice: Random) -> str:
    """For the next submits the answer is lost, or sbatch is killed before or after Slurm took the job, or is slow."""
    faults = [
        dice.choice(["unanswered", "killed-before", "killed-after", "slow 4", "ok"]) for _ in range(dice.randint(1, 4))
    ]
    site.wrapped.plan("sbatch", faults)
    return ", ".join(faults)


@ON_SLURM.kind("sbatch")
def sbatch_refused_for_now(site: SlurmSite, dice: Random) -> str:
    """For the next submits Slurm says that it takes no jobs just now."""
    words = dice.choice(
        [
            "Slurm temporarily unable to accept job, sleeping and retrying",
            "Batch job submission failed: Socket timed out on send/recv operation",
            "Rate limit exceeded, please retry momentarily",
        ]
    )
    times = dice.randint(1, 4)
    site.wrapped.plan("sbatch", [f"refuses {words}"] * times)
    return f"{times} times, {words}"


@ON_SLURM.kind("scancel")
def scancel_fails(site: SlurmSite, dice: Random) -> str:
    """scancel ends with an error and without an effect."""
    faults = ["refuses Unable to contact slurm controller (connect failure)"] * dice.randint(1, 3)
    site.wrapped.plan("scancel", faults)
    return f"{len(faults)} times"


# -- the disk of job folders -------------------------------------------------------------------------------


@ON_SLURM.kind("jobs")
def job_folders_full(site: SlurmSite, dice: Random) -> str:
    """The disk of all job folders is full for a while."""
    with filled(site.jobs):
        seconds = site.hold(dice.uniform(0.5, 5.0))
    return f"{seconds:.1f} s"


def _job(site: SlurmSite, dice: Random) -> str:
    jobs = sorted(site.running(), key=int)
    if not jobs:
        raise NothingToHit
    return dice.choice(jobs)


def _did(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:  # it has just ended, or the controller is away by another fault
        raise NothingToHit
