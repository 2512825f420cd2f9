"""Splits a gang evenly over agents: how many agents, and how many slots on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.dispatchers.docker.scheduler.model import Gang


@dataclass(frozen=True)
class GangShape:
    """`nodes` agents with `slots` each."""

    nodes: int
    slots: int


def shape_of(job: Gang, capacities: Mapping[int, int]) -> GangShape | None:
    """Return the shape of a job, with `capacities[slots]` agents of each size; None when they can never hold it."""
    if job.slots == 0:
        return GangShape(1, 0) if any(capacities.values()) else None

    def suffices(nodes: int, slots: int) -> bool:
        return sum(count for capacity, count in capacities.items() if capacity >= slots) >= nodes

    if job.slots_per_node is not None and job.slots > job.slots_per_node:
        nodes, rest = divmod(job.slots, job.slots_per_node)
        fits = rest == 0 and not job.single_node and suffices(nodes, job.slots_per_node)
        return GangShape(nodes, job.slots_per_node) if fits else None
    if suffices(1, job.slots):
        return GangShape(1, job.slots)
    if job.single_node or job.slots_per_node is not None:
        return None
    for nodes in range(2, min(job.slots, sum(capacities.values())) + 1):
        if job.slots % nodes == 0 and suffices(nodes, job.slots // nodes):
            return GangShape(nodes, job.slots // nodes)
    return None
