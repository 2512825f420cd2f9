"""Two masters of an ordinary user on a Slurm cluster of the chaos ring's own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.chaos.site import USER, Site, folder_of_a_run, small_disk, words_of
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.layout import Layout
from tests.support.slurm.wrapped import Wrapped

OFFSET = 60  # of its ports from those of the first cluster
CONFIG = """
resource_manager:
  type: slurm
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: none
  gpu_libraries: false
  poll_interval: 0.5
  walltime_grace: 40
  commands: {{{commands}}}
  environment: {{SLURM_CONF: {conf}}}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
"""


class ChaosCluster(Cluster):
    """Four nodes beside the first cluster: what happens to them disturbs no other test."""

    def __init__(self, layout: Layout | None = None) -> None:
        super().__init__((layout or Layout.from_environment()).beside("chaos", OFFSET, nodes=4))

    def wait_for_nodes(self, seconds: float = 120.0) -> None:
        """Whatever a fault left of them."""
        self.run("scancel", "--user", USER)
        for node in self.layout.nodes:
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        super().wait_for_nodes(seconds)


class SlurmSite(Site):
    where = "slurm"
    user = USER

    def __init__(self, folder: Path, cluster: Cluster, jobs: Path, checkpoints: Path) -> None:
        self.cluster, self.jobs, self.checkpoints = cluster, jobs, checkpoints
        commands = folder / "commands"
        commands.mkdir()
        self.wrapped = Wrapped(commands)
        super().__init__(folder, masters=2)

    @property
    def environment(self) -> Mapping[str, str]:
        return self.cluster.environment

    def configuration(self) -> str:
        return CONFIG.format(
            jobs=self.jobs,
            commands=", ".join(f"{name}: {path}" for name, path in self.wrapped.commands.items()),
            conf=self.cluster.layout.slurm_conf,
            checkpoints=self.checkpoints,
        )

    def keys(self) -> dict[str, Any]:
        return {"resources": {"slots_per_trial": 0, "resource_pool": "main"}, **self.stepping_clock(bound=False)}

    def marks(self) -> list[bytes]:
        return [*super().marks(), f"{self.jobs}/det-".encode()]

    def running(self) -> dict[str, str]:
        """Slurm's number of every job that runs -> its name."""
        done = self.cluster.run("squeue", "-h", "-t", "R", "-o", "%i %j")
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)

    def administer(self, *words: str, gone: str = "") -> None:
        """scontrol as an administrator who tries again while the controller is away. `gone`: what it says when there is
        nothing left to be done (a regular expression)."""

        def done() -> bool:
            try:
                answer = self.cluster.run("scontrol", *words, timeout=30)
            except subprocess.TimeoutExpired:
                return False
            return answer.returncode == 0 or bool(gone and re.search(gone, answer.stdout + answer.stderr))

        self.eventually(done, f"`scontrol {' '.join(words)}`", every=0.5)

    def resume(self, node: str) -> None:
        self.administer("update", f"NodeName={node}", "State=RESUME", gone="Invalid node state")  # it works already

    def calm(self) -> None:
        """A controller that was killed forgets that a held job was released, and that a node was resumed."""
        for line in self.cluster.run("squeue", "-h", "-t", "PD", "-o", "%i %r").stdout.splitlines():
            job, _, why = line.partition(" ")
            if "held" in why.lower():
                self.cluster.run("scontrol", "release", job)
        for node in self.cluster.layout.nodes:
            self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def leftovers(self) -> list[str]:
        found = []
        # slurmctld and its nodes are up: no fault is there any more.
        if queued := self.cluster.run("squeue", "-h", "-o", "%i %j %T").stdout.splitlines():
            found.append(f"in Slurm's queue: {words_of(queued)}")
        if folders := sorted(path.name for path in self.jobs.iterdir() if path.name.startswith("det-")):
            found.append(f"in the folder of jobs: {words_of(folders)}")
        if left := self.processes():
            found.append(f"processes: {words_of([' '.join(process.command)[-80:] for process in left])}")
        return found


@contextmanager
def slurm_site(cluster: Cluster) -> Iterator[SlurmSite]:
    """On a cluster that is up, which it leaves as it found it."""
    with (
        folder_of_a_run() as folder,
        small_disk(cluster.layout.job_root / f"chaos-{os.getpid()}", 64) as jobs,
        small_disk(folder / "checkpoints", 64) as checkpoints,
    ):
        site = SlurmSite(folder, cluster, jobs, checkpoints)
        try:
            site.start()
            yield site
        finally:
            site.close()
            with contextlib.suppress(OSError):
                shutil.rmtree(jobs / "lost+found")


def recover(cluster: Cluster) -> None:
    """Whatever a fault left of the cluster, have it up again with all of its nodes."""
    cluster.controller.send(signal.SIGCONT)
    cluster.start_controller()
    for node in cluster.layout.nodes:
        cluster.start_node(node)
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")
    cluster.wait_for_nodes()
