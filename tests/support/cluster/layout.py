"""Paths, ports and names of the test cluster. Environment variables change them.

* ``TRAINMASTER_CLUSTER_RUN``: state of the running cluster (/var/lib/trainmaster-cluster)
* ``TRAINMASTER_CLUSTER_PORT``: first TCP port on 127.0.0.1 (18000); one for the controller, one for each node
* ``TRAINMASTER_CLUSTER_NODES``: names of its nodes, comma separated (n1,n2,n3,n4)
* ``TRAINMASTER_CACHE``: what is built once and reused (/var/cache/trainmaster)

A second cluster beside the first needs another run folder, other ports and other node names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

USERS = ("tmalice", "tmbob")
GPUS_PER_NODE = 2
CPUS_PER_NODE = 4
MEMORY_PER_NODE_MB = 8000
MEMORY_PER_CPU_MB = 2000


@dataclass(frozen=True)
class Layout:
    """Paths, ports and names of one test cluster."""

    run: Path
    cache: Path
    first_port: int
    nodes: tuple[str, ...]

    @classmethod
    def from_environment(cls) -> Layout:
        return cls(
            run=Path(os.environ.get("TRAINMASTER_CLUSTER_RUN", "/var/lib/trainmaster-cluster")),
            cache=Path(os.environ.get("TRAINMASTER_CACHE", "/var/cache/trainmaster")),
            first_port=int(os.environ.get("TRAINMASTER_CLUSTER_PORT", "18000")),
            nodes=tuple(os.environ.get("TRAINMASTER_CLUSTER_NODES", "n1,n2,n3,n4").split(",")),
        )

    def beside(self, name: str, offset: int, nodes: int = 2) -> Layout:
        """The layout of another cluster on the same machine: folders, ports and nodes of its own. Node names differ,
        because memory is limited in control groups that bear them."""
        return replace(
            self,
            run=self.run.with_name(f"{self.run.name}-{name}"),
            first_port=self.first_port + offset,
            nodes=tuple(f"{node}{name[0]}" for node in self.nodes[:nodes]),
        )

    @property
    def slurm_conf(self) -> Path:
        return self.run / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge" / "socket"

    @property
    def job_root(self) -> Path:
        """A folder that every node and every user can reach; each user makes job folders below it."""
        return self.run / "jobs"

    @property
    def controller_port(self) -> int:
        return self.first_port

    def node_port(self, node: str) -> int:
        return self.first_port + 1 + self.nodes.index(node)

    def log(self, daemon: str) -> Path:
        return self.run / "log" / f"{daemon}.log"

    def pid_file(self, daemon: str) -> Path:
        return self.run / "pid" / f"{daemon}.pid"

    @property
    def apptainer(self) -> Path:
        return self.cache / "apptainer" / "bin" / "apptainer"

    def image(self, name: str) -> Path:
        return self.cache / "images" / f"{name}.sif"
