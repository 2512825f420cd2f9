"""Lists the nodes of batch schedulers, and this machine, in the form of Determined's agents. The nodes come with the
pools: the scheduler gets no further request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.dispatchers.base import PoolNode, SlotType
from trainmaster.master.services.clusters.clusters import Clusters, ServedPool


@dataclass(frozen=True)
class NodeShown:
    """A node with the pools that it serves."""

    id: str
    cluster: str
    kind: str
    pools: Sequence[str]
    slot_type: SlotType
    slots: int
    used: int
    enabled: bool
    draining: bool


def show(clusters: Clusters) -> list[NodeShown]:
    """All nodes by name. A node of several pools shows its accelerators where one of them has any, else its CPUs."""
    by_node: dict[tuple[str, str], list[tuple[ServedPool, PoolNode]]] = {}
    for served in clusters.pools():
        for node in served.pool.members:
            by_node.setdefault((node.name, served.cluster.name), []).append((served, node))
    return [_merged(entries) for _, entries in sorted(by_node.items())]


def find(nodes: Iterable[NodeShown], node_id: str) -> NodeShown | None:
    return next((node for node in nodes if node.id == node_id), None)


def _merged(entries: Sequence[tuple[ServedPool, PoolNode]]) -> NodeShown:
    accelerated = [entry for entry in entries if entry[0].pool.slot_type is not SlotType.CPU and entry[1].slots]
    served, node = max(accelerated or entries, key=lambda entry: entry[1].slots)
    kind = served.cluster.kind
    return NodeShown(
        id=node.name,
        cluster=served.cluster.name,
        kind=kind,
        pools=[each.pool.name for each, _ in entries],
        slot_type=served.pool.slot_type,
        slots=node.slots,
        used=min(node.slots_used, node.slots),
        enabled=any(each.enabled for _, each in entries),
        draining=any(each.draining for _, each in entries),
    )
