"""Measures how long a one-minute trial that reports each second holds its slot, compared with the same loop in a bare
sbatch job. Both run at the same time, on the same cluster, without containers."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

from benchmarks.measure import Deadline, Sample, say
from benchmarks.scale import slurm_cluster, slurm_master
from tests.support import trainings
from tests.support.cluster.cluster import Cluster
from tests.support.master import files, make_folder, remove_folder, wait_ended, wait_for
from tests.support.slurm.site import USER
from trainmaster.client.master import Master

ROUNDS = 2
SECONDS = 60
WANTED = 1.0  # percent
# With an argument it reports nothing: the bare script imports no core, and writes its lines to its output.
TRAINS = f"""
import json, sys, time

core = None
if len(sys.argv) == 1:
    from trainmaster import core

def main(context):
    for step in range(1, {SECONDS} + 1):
        time.sleep(1)
        metrics = {{"loss": 1 / step, "accuracy": 0.5}}
        if context:
            context.train.report_training_metrics(step, metrics)
        else:
            print(json.dumps(metrics), flush=True)

if core:
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        main(context)
else:
    main(None)
"""


def run(deadline: Deadline) -> None:
    """Rounds of both at once until the deadline; seconds from the start to the end of Slurm's batch step."""
    with slurm_cluster() as cluster, ExitStack() as stack:
        folder = make_folder()
        stack.callback(remove_folder, folder)
        master = slurm_master(folder, cluster)
        stack.callback(master.clean_up)
        client = master.client()
        wait_for(lambda: client.pools(), "the pools")
        ours: list[float] = []
        bare: list[float] = []
        for turn in range(ROUNDS):
            if turn and deadline.left < 2 * SECONDS:
                break
            _together(cluster, client, ours, bare)
    mine, peer = Sample(ours, "s"), Sample(bare, "s")
    more = (mine.median / peer.median - 1) * 100
    say(
        "minute",
        f"a trial of {SECONDS} s that reports each second",
        f"ours {', '.join(f'{each:.2f}' for each in ours)} s",
        f"the same loop from a bare sbatch {', '.join(f'{each:.2f}' for each in bare)} s",
        f"{more:+.2f} %, at most {WANTED:g} % is wanted",
    )


def _together(cluster: Cluster, client: Master, ours: list[float], bare: list[float]) -> None:
    output = cluster.layout.job_root / f"minute-{time.time_ns()}"
    script = f"#!/bin/bash\nexec {sys.executable} -c \"$(cat <<'END'\n{TRAINS}END\n)\" bare\n"
    before = _jobs(cluster)
    done = cluster.run_as(USER, ["sbatch", "--parsable", "--gpus=1", f"--output={output}"], stdin=script)
    assert done.returncode == 0, done.stderr
    by_hand = done.stdout.strip()
    number = client.create_experiment(trainings.experiment(), files(train__py=TRAINS)).id
    job = wait_for(lambda: _jobs(cluster) - before - {by_hand}, "the trial's job", 60, 0.2).pop()
    watches = [Thread(target=lambda: bare.append(_held(by_hand))), Thread(target=lambda: ours.append(_held(job)))]
    for watch in watches:
        watch.start()
    for watch in watches:
        watch.join(3 * SECONDS)
    assert wait_ended(client, number, SECONDS).state == "COMPLETED"
    assert len(output.read_text().splitlines()) == SECONDS, output.read_text()
    output.unlink()


def _jobs(cluster: Cluster) -> set[str]:
    return set(cluster.command("squeue", "--noheader", "--format=%i").split())


def _held(job: str) -> float:
    """Seconds from the start of the job's batch step to its end, both by the clock of this machine's kernel."""
    pid = wait_for(lambda: _batch_step(job), f"the batch step of job {job}", 60, 0.1)
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], 3 * SECONDS)[0], f"job {job} does not end"
    finally:
        os.close(descriptor)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def _batch_step(job: str) -> int | None:
    wanted = f"slurmstepd: [{job}.batch]".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(wanted):
                    return int(entry.name)
            except OSError:
                continue
    return None
