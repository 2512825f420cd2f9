"""A test cluster with a backup controller."""

from __future__ import annotations

import shutil
import socket

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.configuration import MIN_JOB_AGE, Profile
from tests.support.cluster.daemons import Daemon, wait_until
from tests.support.cluster.layout import Layout

OFFSET = 30  # of its ports from those of the first cluster
SPARE = "spare"


class FailoverCluster(Cluster):
    """Two nodes and two controllers, which share their state. Slurm tells controllers apart by their host's name and
    gives all of them one port: the spare one has a host name of its own (in namespaces) and listens on 127.0.0.2."""

    def __init__(self, layout: Layout | None = None) -> None:
        layout = (layout or Layout.from_environment()).beside("failover", OFFSET)
        settings = {"SlurmctldTimeout": "5"}
        super().__init__(layout, Profile(settings, (f"SlurmctldHost={SPARE}(127.0.0.2)",)))

    @property
    def spare(self) -> Daemon:
        return Daemon("slurmctld-spare", self.layout.pid_file("slurmctld-spare"), self.layout.log("slurmctld-spare"))

    def services(self) -> list[Daemon]:
        return [self.spare]

    def start_spare(self) -> None:
        """Start it and wait until it stands by."""
        hosts = self.layout.run / "etc" / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n127.0.0.2 {SPARE}\n")
        command = f"mount --bind {hosts} /etc/hosts; hostname {SPARE}; exec slurmctld -D -f {self.layout.slurm_conf}"
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}
        self.spare.start(["unshare", "--uts", "--mount", "/bin/sh", "-ec", command], environment)
        wait_until(lambda: self.pings()[SPARE], 60, f"the spare slurmctld ({self.spare.last_words()})")

    def pings(self) -> dict[str, bool]:
        """Controller's host -> whether it is up."""
        lines = self.run("scontrol", "ping").stdout.splitlines()
        first = {socket.gethostname(): False, SPARE: False}
        return first | {line.split()[2]: line.endswith("is UP") for line in lines if line.startswith("Slurmctld(")}

    def up(self, min_job_age: int = MIN_JOB_AGE) -> None:
        super().up(min_job_age)
        self.start_spare()

    def lose_state(self) -> None:
        """What a lost disk does: the controllers die, and a new one knows of no job and counts from 1 again."""
        self.spare.kill()
        self.controller.kill()
        shutil.rmtree(self.layout.run / "state")
        (self.layout.run / "state").mkdir(mode=0o700)
        self.start_controller()
        self.wait_for_nodes()
