"""Connects the launchers of a job's nodes with each other."""

from __future__ import annotations

from trainmaster.core.distributed import DistributedContext
from trainmaster.launchers.place import Place


def connect_nodes(place: Place) -> DistributedContext:
    """Connect one rank for each node, in the order of the nodes, over the launcher's own port; connections are
    authenticated with the job's secret. To be called on every node. Raises DistributedError."""
    return DistributedContext(
        rank=place.rank,
        size=place.nodes,
        local_rank=0,
        local_size=1,
        cross_rank=place.rank,
        cross_size=place.nodes,
        chief_ip=place.chief,
        pub_port=place.launcher_port,
    )
