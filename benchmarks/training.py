"""Measures the speed of one model on two nodes with the Core API and the torchrun launcher, compared with the same loop
under plain torchrun in an sbatch job: same nodes, container image and number of workers, in alternation."""

from __future__ import annotations

import re
import time
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, figure, say
from tests.support import trainings
from tests.support.cluster import images, packages
from tests.support.cluster.cluster import Cluster
from tests.support.master import files, wait_ended, wait_for
from tests.support.slurm.site import USER
from trainmaster.client.master import Master

TURNS = 7
SECONDS = 6.0  # of training that are measured in each run
WARM_UP = 50  # steps
# Steps; what so many take counts, the median of it in each run: other work on the machine comes in gusts.
REPORT_EVERY = 10
BATCH = 256  # samples of each worker
# DistributedDataParallel over gloo; what stands below `if core` is all that the Core API adds to a loop.
LOOP = f"""
import os, statistics, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

core = None
if len(sys.argv) == 1:
    from trainmaster import core

def main(context):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(network)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn({BATCH}, 256), torch.randint(0, 10, ({BATCH},))
    step, windows, last, inside = 0, [], None, 0.0
    going = torch.ones(1)
    while going.item():
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimiser.step()
        step += 1
        if step % {REPORT_EVERY} == 0:
            told = loss.item()
            if core:
                entered = time.perf_counter()
                if dist.get_rank() == 0:
                    context.train.report_training_metrics(step, {{"loss": told}})
                context.preempt.should_preempt()
                inside += 0.0 if last is None else time.perf_counter() - entered
            if step >= {WARM_UP}:
                now = time.perf_counter()
                windows += [] if last is None else [now - last]
                last = now
            going[0] = float(sum(windows) < {SECONDS})
            dist.broadcast(going, 0)
    if dist.get_rank() == 0:
        rate = {REPORT_EVERY} * {BATCH} * dist.get_world_size() / statistics.median(windows)
        print("SAMPLES A SECOND", round(rate, 1), "INSIDE", round(100 * inside / sum(windows), 3), flush=True)

dist.init_process_group("gloo")
if core:
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        main(context)
else:
    main(None)
dist.destroy_process_group()
"""
_RATE = re.compile(r"SAMPLES A SECOND ([\d.]+) INSIDE ([\d.]+)")
_PLAIN = """#!/bin/bash
cat > {folder}/plain.py <<'END'
{loop}
END
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 bash -c 'exec {apptainer} exec --bind {folder} {image} python3 -m \\
    torch.distributed.run --nnodes 2 --nproc_per_node 1 --node_rank $SLURM_NODEID --max_restarts 0 \\
    --master_addr 127.0.0.1 --master_port {port} {folder}/plain.py plain'
"""


def run(cluster: Cluster, apptainer: Path, client: Master, deadline: Deadline) -> None:
    """Turns of both ways until the deadline; the ratio of the medians, and that of each turn."""
    try:
        image = images.build(cluster.layout, "torch")
    except packages.Unavailable as reason:
        raise Unavailable(str(reason)) from None
    ours: list[float] = []
    plain: list[float] = []
    inside: list[float] = []
    for turn in range(TURNS):
        if turn and deadline.left < 90:
            break
        ways = [
            lambda: _note(_through_master(client, image), ours, inside),
            lambda: plain.append(_plain(cluster, apptainer, image)),
        ]
        for way in ways if turn % 2 == 0 else reversed(ways):
            way()
    mine, peer = Sample(ours, "samples/s", ()), Sample(plain, "samples/s", ())
    turns = ", ".join(figure(one / other) for one, other in zip(ours, plain, strict=True))
    say(
        "start",
        "two nodes, one worker each, DistributedDataParallel over gloo",
        f"Core API and torchrun {mine}",
        f"plain torchrun by sbatch {peer}",
        f"{mine.median / peer.median:.3f} times it; turn by turn {turns}",
        f"of its time in the calls of the Core API {Sample(inside, '%')}",
    )


def _note(found: tuple[float, float], rates: list[float], inside: list[float]) -> None:
    rates.append(found[0])
    inside.append(found[1])


def _through_master(client: Master, image: Path) -> tuple[float, float]:
    """Samples a second, and the share in percent of the loop's time that went into calls of the Core API."""
    text = trainings.experiment(
        keys={
            "entrypoint": "python3 -m trainmaster.launchers.torchrun train.py",
            "resources": {"slots_per_trial": 2},
            "slurm": {"slots_per_node": 1},
            "environment": {
                "image": str(image),
                "environment_variables": ["OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo"],
            },
        }
    )
    number = client.create_experiment(text, files(train__py=LOOP)).id
    ended = wait_ended(client, number, 120)
    trial = client.trials(number)[0]
    log = "\n".join(line.log for line in client.logs(trial.id))
    found = _RATE.search(log)
    if found is None:
        raise Unavailable(f"the experiment ended as {ended.state}: {trial.reason} {log[-500:]}")
    return float(found[1]), float(found[2])


def _plain(cluster: Cluster, apptainer: Path, image: Path) -> float:
    folder = cluster.layout.job_root / f"plain-{time.time_ns()}"
    cluster.run_as(USER, ["mkdir", str(folder)])
    port = 20_000 + time.time_ns() // 1000 % 10_000
    script = _PLAIN.format(loop=LOOP, folder=folder, apptainer=apptainer, image=image, port=port)
    words = [
        "sbatch",
        f"--output={folder}/output",
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=1",
    ]
    done = cluster.run_as(USER, words, stdin=script)
    if done.returncode != 0:
        raise Unavailable(done.stderr)
    output = folder / "output"
    number = done.stdout.split()[-1]
    wait_for(lambda: number not in cluster.command("squeue", "--noheader", "--format=%i"), "plain torchrun", 120)
    said = output.read_text()
    if (found := _RATE.search(said)) is None:
        raise Unavailable(f"plain torchrun: {said[-500:]}")
    return float(found[1])
