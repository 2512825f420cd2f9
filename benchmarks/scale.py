"""Measures many jobs: 500 one-second trials, compared with a bare sbatch loop and submitit, and 5,000 waiting jobs.

The same script on the same cluster of its own, without containers; no rate limit but the scheduler's own.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, figure, say, versus
from benchmarks.scheduling import FROM_NODES
from tests.support import trainings
from tests.support.cluster import packages
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.layout import Layout
from tests.support.master import MasterProcess, files, make_folder, remove_folder, wait_for
from tests.support.slurm.site import USER, make_slurm_master
from trainmaster.client.master import Master

TRIALS = int(os.environ.get("BENCH_TRIALS", "500"))
WAITING = int(os.environ.get("BENCH_WAITING", "5000"))
DISTURBED = 0.02  # part of the processors' time that other machines of the same host took
ROUNDS = 3
LEFT_FOR_OTHERS = 5  # rounds for which time is left when one is made again
POLL = 10.0  # seconds, what an administrator gets who says nothing
TRAINS = "import time\ntime.sleep(1)\nprint('done', flush=True)\n"


@dataclass(frozen=True)
class Cost:
    """What some jobs cost."""

    seconds: float
    rpcs: int  # of clients; what nodes send for every job is not counted
    cpu: float  # seconds of slurmctld
    stolen: float  # part of the processors' time that other machines of the same host took

    def averaged_with(self, other: Cost) -> Cost:
        """Of two runs of the same."""
        seconds, cpu = (self.seconds + other.seconds) / 2, (self.cpu + other.cpu) / 2
        return Cost(seconds, (self.rpcs + other.rpcs) // 2, cpu, (self.stolen + other.stolen) / 2)

    def __str__(self) -> str:
        cpu = f"slurmctld {self.cpu / TRIALS * 1000:.1f} ms a job"
        return f"{figure(self.seconds)} s, {self.rpcs / TRIALS:.2f} RPCs a job, {cpu} ({self.stolen:.0%} stolen)"


def throughput(deadline: Deadline) -> None:
    """`TRIALS` one-second jobs: through the master, by hand, and with submitit. By hand before and after, so that what
    a machine's other guests take, or leave, for minutes counts on both sides. A round of which they stole more than
    `DISTURBED` is told of and made again."""
    with slurm_cluster() as cluster, ExitStack() as stack:
        folder = make_folder()
        stack.callback(remove_folder, folder)
        before = _undisturbed("an sbatch loop", cluster, lambda: _by_hand(cluster, deadline), deadline)
        master = slurm_master(folder, cluster)
        stack.callback(master.clean_up)
        client = master.client()
        wait_for(lambda: client.pools(), "the pools")
        ours = _undisturbed("ours", cluster, lambda: _through_master(client, deadline), deadline)
        master.stop()
        after = _undisturbed("an sbatch loop", cluster, lambda: _by_hand(cluster, deadline), deadline)
        bare = before.averaged_with(after)
        cycles = ours.seconds / POLL
        say("scale", f"{TRIALS} one-second trials", f"ours {ours}")
        say("scale", "the same from an sbatch loop", f"before it {before}", f"after it {after}")
        say("scale", "time", versus(ours.seconds, bare.seconds, "the sbatch loop"), "at most 1.35 is wanted")
        allowed = 1.2 * TRIALS + 2 * cycles
        say("scale", "RPCs", f"ours {ours.rpcs}", f"1.2 a trial and 2 for each of {cycles:.0f} looks are {allowed:.0f}")
        say("scale", "slurmctld CPU", versus(ours.cpu, bare.cpu, "the sbatch loop"))
        if deadline.left < bare.seconds:
            raise Unavailable("submitit: no time left")
        peer = _cost(cluster, lambda: _with_submitit(cluster, deadline))
        say("scale", f"{TRIALS} one-second jobs with submitit", peer, versus(ours.seconds, peer.seconds, "it"))


def waiting(deadline: Deadline) -> None:
    """`WAITING` jobs in Slurm's queue: a pass of the controller, and the master's memory."""
    with slurm_cluster() as cluster, ExitStack() as stack:
        folder = make_folder()
        stack.callback(remove_folder, folder)
        cluster.command("scontrol", "update", "PartitionName=main", "State=DOWN")
        stack.callback(cluster.command, "scontrol", "update", "PartitionName=main", "State=UP")
        master = slurm_master(folder, cluster)
        stack.callback(master.clean_up)
        client = master.client("admin")
        stack.callback(cluster.run, "scancel", f"--user={USER}", timeout=120)
        before = _memory(master.pid)
        searcher = {"name": "random", "metric": "error", "max_trials": WAITING, "max_concurrent_trials": WAITING}
        started = time.monotonic()
        client.create_experiment(trainings.experiment(searcher), files(train__py=TRAINS))
        queued = wait_for(lambda: (n := _queued(cluster)) >= WAITING and n, "the queue", max(deadline.left - 60, 60), 5)
        took = time.monotonic() - started
        passes: list[float] = []
        looks: list[float] = []
        until = time.monotonic() + min(6 * POLL, max(deadline.left, 20))
        while time.monotonic() < until:
            for last, known in zip(_last_pass_and_look(master), (passes, looks), strict=True):
                if last and (not known or last != known[-1]):
                    known.append(last)
            time.sleep(0.1)
        bare = Sample([_timed_squeue(cluster) for _ in range(5)])
        say("waiting", f"{queued} jobs queued in {took:.0f} s", f"{queued / took:.0f} a second")
        say(
            "waiting",
            f"a pass of the controller over {queued} jobs",
            f"{Sample([p * 1000 for p in passes])}",
            f"the slowest {figure(max(passes) * 1000)} ms",
            "under 200 ms is wanted",
        )
        say(
            "waiting",
            "a look at the cluster, beside the passes",
            f"{Sample([p * 1000 for p in looks])}",
            f"the slowest {figure(max(looks) * 1000)} ms",
            f"a bare squeue of them {bare}",
        )
        say(
            "waiting", "memory of the master", f"{_memory(master.pid):.0f} MB ({before:.0f} before)", "under 300 wanted"
        )


def _through_master(client: Master, deadline: Deadline) -> None:
    searcher = {"name": "random", "metric": "error", "max_trials": TRIALS, "max_concurrent_trials": TRIALS}
    number = client.create_experiment(trainings.experiment(searcher), files(train__py=TRAINS)).id
    found = wait_for(
        lambda: (e := client.experiment(number)).state in ("COMPLETED", "ERROR", "CANCELED") and e,
        "the trials",
        max(deadline.left, 60),
        1.0,  # as often as the loop beside it looks
    )
    assert found.state == "COMPLETED", found


def _by_hand(cluster: Cluster, deadline: Deadline) -> None:
    """What a person writes: submit in a loop, then look once a second."""
    script = f"#!/bin/bash\nexec {sys.executable} -c \"$(cat <<'END'\n{TRAINS}END\n)\"\n"
    loop = textwrap.dedent(f"""\
        for i in $(seq {TRIALS}); do
            sbatch --parsable --gpus=1 --output=/dev/null "$1" > /dev/null || exit 1
        done
        while [ -n "$(squeue --noheader --me)" ]; do sleep 1; done
        """)
    job = cluster.layout.job_root / f"bare-{time.time_ns()}.sh"
    job.write_text(script)
    job.chmod(0o755)
    done = cluster.run_as(USER, ["bash", "-c", loop, "loop", str(job)], timeout=max(deadline.left, 60))
    job.unlink()
    assert done.returncode == 0, done.stderr


def _with_submitit(cluster: Cluster, deadline: Deadline) -> None:
    place = cluster.layout.job_root / f"submitit-{time.time_ns()}"
    program = textwrap.dedent(f"""\
        import logging, time, submitit
        logging.disable(logging.CRITICAL)  # it says of every look that there is no accounting
        executor = submitit.SlurmExecutor(folder={str(place)!r}, max_num_timeout=0)
        executor.update_parameters(time=5, gpus_per_node=1, ntasks_per_node=1)
        for job in [executor.submit(time.sleep, 1) for _ in range({TRIALS})]:
            job.result()
        """)
    done = cluster.run_as(USER, [sys.executable, "-c", program], timeout=max(deadline.left, 60))
    assert done.returncode == 0, done.stderr[-2000:]


def _undisturbed(what: str, cluster: Cluster, work: Callable[[], None], deadline: Deadline) -> Cost:
    """The first of `ROUNDS` that was not disturbed, else the least disturbed one."""
    costs = [_cost(cluster, work)]
    while costs[-1].stolen > DISTURBED and len(costs) < ROUNDS and deadline.left > LEFT_FOR_OTHERS * costs[-1].seconds:
        say("scale", "disturbed, and made again", f"{what} {costs[-1]}")
        costs.append(_cost(cluster, work))
    return min(costs, key=lambda cost: cost.stolen)


def _cost(cluster: Cluster, work: Callable[[], None]) -> Cost:
    wait_for(lambda: _queued(cluster) == 0, "an empty queue")
    cluster.reset_rpc_counts()
    cpu, stolen, began = _cpu(cluster), _stolen(), time.monotonic()
    work()
    seconds = time.monotonic() - began
    asked = sum(count for name, count in cluster.rpc_counts().items() if not FROM_NODES.match(name))
    part = (_stolen() - stolen) / (seconds * (os.cpu_count() or 1))
    return Cost(seconds, asked, _cpu(cluster) - cpu, part)


def _queued(cluster: Cluster) -> int:
    return len(cluster.command("squeue", "-h", "-o", "%i", timeout=120).splitlines())


def _cpu(cluster: Cluster) -> float:
    """Seconds that slurmctld has used."""
    fields = Path(f"/proc/{cluster.controller.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stolen() -> float:
    """Seconds since this machine began, of all its processors (proc(5), steal)."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """MB of a process, the database beside it not counted."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} is gone")


def _last_pass_and_look(master: MasterProcess) -> tuple[float | None, float | None]:
    """Seconds."""
    with urllib.request.urlopen(f"{master.url}/health", timeout=10) as answer:
        (manager,) = json.load(answer)["resource_managers"]
    return manager["seconds_per_pass"], manager["seconds_per_look"]


def _timed_squeue(cluster: Cluster) -> float:
    began = time.perf_counter()
    cluster.command("squeue", "-h", "-t", "all")
    return (time.perf_counter() - began) * 1000


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """A Slurm cluster of the benchmarks' own, its queue empty."""
    cluster = Cluster(Layout.from_environment())
    with ExitStack() as stack:
        stack.callback(cluster.down)
        try:
            cluster.up()
        except (packages.Unavailable, TimeoutError) as reason:
            raise Unavailable(str(reason)) from None
        # A run that was interrupted has left its jobs, and perhaps a partition that starts none.
        cluster.run("scancel", f"--user={USER}", timeout=120)
        cluster.command("scontrol", "update", "PartitionName=main", "State=UP")
        yield cluster


def slurm_master(folder: Path, cluster: Cluster) -> MasterProcess:
    """A master without containers and with an administrator's usual look every ten seconds."""
    nowhere = Path("/nowhere")
    master = make_slurm_master(folder, cluster, nowhere, nowhere, container="none")
    text = master.config.read_text().replace("poll_interval: 1", f"poll_interval: {POLL:g}\n  submits_per_second: 1000")
    master.config.write_text(text.replace(f"  container_command: {nowhere}\n", ""))
    return master.start()
