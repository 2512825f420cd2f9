"""Measures the overhead of the master on real Slurm: seconds to a script's first line, samples per second, and RPCs to
slurmctld.

It uses its own cluster, so that no other jobs and RPCs are counted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import imports, reporting, training
from benchmarks.measure import Deadline, Sample, Unavailable, say, versus
from tests.support import trainings
from tests.support.cluster import apptainer, images, packages
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.layout import Layout
from tests.support.master import MasterProcess, files, make_folder, remove_folder, wait_ended, wait_for
from tests.support.slurm.site import USER, make_slurm_master
from trainmaster.client.master import Master

Moments = tuple[float, float]  # seconds from the request, and from the job's start, to the first line

TIMES = 7
TRIALS = 20
# When its first line runs, and when the scheduler started the job: the oldest process below slurmstepd.
SAYS_WHEN = """import os, time
now, above, below = time.time(), os.getpid(), 0
while above:
    stat = open(f"/proc/{above}/stat").read()
    if "(slurmstepd)" in stat:
        break
    began, above = int(stat.rpartition(")")[2].split()[19]), int(stat.rpartition(")")[2].split()[1])
up = time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK") - (time.time() - now)
print("RUNNING", now, round(up, 3), flush=True)
"""
_RUNNING = re.compile(r"^RUNNING ([\d.]+) ([\d.]+)$", re.MULTILINE)
# What slurmd sends for every job whoever submitted it.
FROM_NODES = re.compile("MESSAGE_|REQUEST_COMPLETE_|REQUEST_STEP_COMPLETE|REQUEST_PING|REQUEST_CONTROL|REQUEST_STATS")


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    apptainer: Path
    image: Path
    master: MasterProcess


def start(deadline: Deadline) -> None:
    """From `det experiment create` and from `sbatch`, and from the start of the job, to the first line of the same
    script, in the same container and without one. Then what a report costs, and how fast two nodes train."""
    imports.run(deadline)
    with _site() as site:
        client = site.master.client()
        with _without_containers(site) as uncontained:
            ways = {
                "ours": lambda: _through_master(client),
                "apptainer": lambda: _through_sbatch(site, f"{site.apptainer} exec {site.image} python3 -c"),
                "ours, no container": lambda: _through_master(uncontained),
                "plain": lambda: _through_sbatch(site, "python3 -c"),
            }
            found = _in_turns(ways, deadline)
        for where, mine, peer, name in (
            ("Apptainer", "ours", "apptainer", "apptainer exec of the same image"),
            ("no container", "ours, no container", "plain", "the bare script"),
        ):
            for what, place in (("create", 0), ("the job's start", 1)):
                one = Sample([each[place] for each in found[mine]], "s")
                other = Sample([each[place] for each in found[peer]], "s")
                by = "sbatch of " if place == 0 else ""
                say(
                    "start",
                    f"{what} to the script's first line, {where}",
                    f"ours {one}",
                    f"{by}{name} {other}",
                    f"{one.median - other.median:+.2f} s",
                )
        reporting.run(deadline)
        training.run(site.cluster, site.apptainer, client, deadline)


def _in_turns(ways: dict[str, Callable[[], Moments]], deadline: Deadline) -> dict[str, list[Moments]]:
    found: dict[str, list[Moments]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(len(ways) * TIMES):
        if deadline.left > 0 or turn < len(ways):
            name = names[turn % len(names)]
            found[name].append(ways[name]())
        if turn % len(names) == len(names) - 1:
            names.append(names.pop(0))  # nobody always comes after the same one
    return found


def load(deadline: Deadline) -> None:
    """RPCs to slurmctld for a random search, and for as many jobs by hand."""
    with _site() as site:
        client = site.master.client()
        searcher = {"name": "random", "metric": "error", "max_trials": TRIALS, "max_concurrent_trials": 8}
        text = trainings.experiment(searcher, epochs=2, pause=0.5)
        # The master's idle questions (a probe, the pools) are over before the count begins.
        wait_for(lambda: client.pools(), "the pools")
        site.cluster.reset_rpc_counts()
        started = time.monotonic()
        number = client.create_experiment(text, files(train__py=trainings.COUNTING)).id
        assert wait_ended(client, number, max(deadline.left, 60)).state == "COMPLETED"
        took = time.monotonic() - started
        ours = site.cluster.rpc_counts()
        site.cluster.reset_rpc_counts()
        for _ in range(TRIALS):
            site.cluster.run_as(USER, ["sbatch", "--output=/dev/null", "--wrap", "sleep 1"])
        site.cluster.run_as(USER, ["squeue"])
        bare = site.cluster.rpc_counts()
        mine, peer = _asked(ours), _asked(bare)
        say(
            "load",
            f"RPCs of clients per trial, {TRIALS} trials in {took:.0f} s",
            f"ours {mine / TRIALS:.2f}",
            f"{TRIALS} bare sbatch and one squeue {peer / TRIALS:.2f}",
            versus(mine, peer, "it"),
        )
        say("load", "of which", ", ".join(f"{k} {v}" for k, v in sorted(ours.items()) if not FROM_NODES.match(k)))


def _asked(counts: dict[str, int]) -> int:
    return sum(count for name, count in counts.items() if not FROM_NODES.match(name))


@contextmanager
def _site() -> Iterator[Site]:
    cluster = Cluster(Layout.from_environment())
    folder = make_folder()
    with ExitStack() as stack:
        stack.callback(remove_folder, folder)
        stack.callback(cluster.down)
        try:
            cluster.up()
            program = apptainer.install(cluster.layout)
            image = images.build(cluster.layout, "python")
        except (packages.Unavailable, TimeoutError) as reason:
            raise Unavailable(str(reason)) from None
        master = make_slurm_master(folder, cluster, program, image).start()
        stack.callback(master.clean_up)
        yield Site(cluster, program, image, master)


@contextmanager
def _without_containers(site: Site) -> Iterator[Master]:
    """Another master on the same cluster."""
    folder = make_folder()
    master = make_slurm_master(folder, site.cluster, site.apptainer, site.image, container="none")
    try:
        yield master.start().client()
    finally:
        master.clean_up()
        remove_folder(folder)


def _through_master(client: Master) -> Moments:
    """The clock of the script is this machine's."""
    asked = time.time()
    text = trainings.experiment()
    number = client.create_experiment(text, files(train__py=SAYS_WHEN)).id
    trial = wait_for(lambda: client.trials(number), "the trial")[0]
    said = next(found for line in client.logs(trial.id, follow=True) if (found := _RUNNING.match(line.log)))
    wait_ended(client, number)
    return float(said[1]) - asked, float(said[2])


def _through_sbatch(site: Site, command: str) -> Moments:
    output = site.cluster.layout.job_root / f"bare-{time.time_ns()}"
    script = f"#!/bin/bash\n{command} \"$(cat <<'END'\n{SAYS_WHEN}END\n)\"\n"
    asked = time.time()
    done = site.cluster.run_as(USER, ["sbatch", f"--output={output}"], stdin=script)
    assert done.returncode == 0, done.stderr
    said = wait_for(lambda: _RUNNING.search(output.read_text()) if output.exists() else None, "the bare job")
    output.unlink()
    return float(said[1]) - asked, float(said[2])
