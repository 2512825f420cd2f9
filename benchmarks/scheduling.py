"""What going through the master costs on real Slurm: seconds to the first line of a script, and questions to slurmctld.

Measured on a cluster of its own, so that nobody else's jobs and questions are counted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, say, versus
from tests.cluster import apptainer, images, packages
from tests.cluster.cluster import Cluster
from tests.cluster.layout import Layout
from tests.e2e import trainings
from tests.e2e.master import MasterProcess, files, make_folder, remove_folder, wait_ended, wait_for
from tests.e2e.slurm import USER, make_slurm_master
from trainmaster.client.master import Master

TIMES = 7
TRIALS = 20
SAYS_WHEN = "import time\nprint('RUNNING', time.time(), flush=True)\n"
# What slurmd sends for every job whoever submitted it.
_RUNNING = re.compile(r"^RUNNING ([\d.]+)$", re.MULTILINE)
FROM_NODES = re.compile("MESSAGE_|REQUEST_COMPLETE_|REQUEST_STEP_COMPLETE|REQUEST_PING|REQUEST_CONTROL|REQUEST_STATS")


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    apptainer: Path
    image: Path
    master: MasterProcess


def start(deadline: Deadline) -> None:
    """From `det experiment create` and from `sbatch` to the first line of the same script in the same container."""
    with _site() as site:
        client = site.master.client()
        ours: list[float] = []
        bare: list[float] = []
        plain: list[float] = []
        ways = [
            lambda: ours.append(_through_master(client)),
            lambda: bare.append(_through_sbatch(site, f"{site.apptainer} exec {site.image} python3 -c")),
            lambda: plain.append(_through_sbatch(site, "python3 -c")),
        ]
        for turn in range(3 * TIMES):
            if deadline.left > 0 or turn < len(ways):
                ways[turn % len(ways)]()
            if turn % len(ways) == len(ways) - 1:
                ways.append(ways.pop(0))  # nobody always comes after the same one
        mine, peer = Sample(ours, "s"), Sample(bare, "s")
        say(
            "start",
            "create to the script's first line, Apptainer",
            f"ours {mine}",
            f"sbatch of the same {peer}",
            f"sbatch without a container {Sample(plain, 's')}",
            f"{mine.median - peer.median:+.2f} s",
        )


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


def _through_master(client: Master) -> float:
    """Seconds; the clock of the script is this machine's."""
    asked = time.time()
    text = trainings.experiment()
    number = client.create_experiment(text, files(train__py=SAYS_WHEN)).id
    trial = wait_for(lambda: client.trials(number), "the trial")[0]
    line = next(line.log for line in client.logs(trial.id, follow=True) if line.log.startswith("RUNNING "))
    wait_ended(client, number)
    return float(line.split()[1]) - asked


def _through_sbatch(site: Site, command: str) -> float:
    output = site.cluster.layout.job_root / f"bare-{time.time_ns()}"
    script = f"#!/bin/bash\n{command} \"$(cat <<'END'\n{SAYS_WHEN}END\n)\"\n"
    asked = time.time()
    done = site.cluster.run_as(USER, ["sbatch", f"--output={output}"], stdin=script)
    assert done.returncode == 0, done.stderr
    said = wait_for(lambda: _RUNNING.search(output.read_text()) if output.exists() else None, "the bare job")
    output.unlink()
    return float(said[1]) - asked
