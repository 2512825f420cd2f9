"""Converts partitions to resource pools, and checks jobs against them before the submit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobSpec, Pool, PoolNode, Problem, SlotType
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.parse import NodeLine
from trainmaster.dispatchers.slurm.resources import NodeRequest

# States in which a node accepts jobs sooner or later without an administrator.
_USABLE = ("idle", "mixed", "allocated", "completing", "planned", "reserved", "resv", "maint", "power", "reboot")


@dataclass(frozen=True)
class Partition:
    """A partition with its nodes."""

    name: str
    nodes: tuple[NodeLine, ...]
    slot_type: SlotType

    @property
    def usable(self) -> list[NodeLine]:
        return [node for node in self.nodes if node.state.lower().startswith(_USABLE)]

    def slots_of(self, node: NodeLine, gpu_type: str | None = None) -> int:
        """Slots of a node; its GPUs of that type, when one is asked for."""
        return node.cpus_total if self.slot_type is SlotType.CPU else node.gpus.of(gpu_type)

    def node_size(self, gpu_type: str | None = None) -> int:
        """Slots of the largest node (its GPUs of that type, when one is asked for)."""
        return max((self.slots_of(node, gpu_type) for node in self._fitting(gpu_type)), default=0)

    def _fitting(self, gpu_type: str | None) -> list[NodeLine]:
        return [node for node in self.nodes if gpu_type is None or gpu_type in node.gpu_types]

    @property
    def _gpu_types(self) -> list[str]:
        return sorted({kind for node in self.nodes for kind in node.gpu_types})

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What Slurm prints of the nodes' GPUs and cannot be counted."""
        unread = {text: node.node for node in reversed(self.nodes) for text in node.gpus.unread}
        return tuple(
            Problem(
                f"The GPUs of node {node} in partition {self.name} cannot be counted: sinfo prints {text!r}.",
                "Correct Gres in slurm.conf, or set slots_per_node and slot_type in partition_overrides. Jobs are "
                "not checked against the number of GPUs until then.",
            )
            for text, node in unread.items()
        )

    @property
    def max_walltime(self) -> int | None:
        return self.nodes[0].max_walltime

    @property
    def default_walltime(self) -> int | None:
        """Time limit in seconds of a job that requests none."""
        return self.nodes[0].default_walltime or self.max_walltime

    def pool(self, options: SlurmOptions) -> Pool:
        cpus = self.slot_type is SlotType.CPU
        return Pool(
            name=self.name,
            slot_type=self.slot_type,
            slots_total=sum(self.slots_of(node) for node in self.usable),
            slots_used=sum(node.cpus_used if cpus else node.gpus_used for node in self.usable),
            nodes=len(self.usable),
            slots_per_node=self.node_size(),
            description=options.pool(self.name).description or "Slurm-managed pool of resources",
            accelerator=", ".join(self._gpu_types),
            is_default=self.nodes[0].is_default,
            exclusive=self.nodes[0].exclusive,
            max_walltime=self.max_walltime,
            up=self.nodes[0].up and bool(self.usable),
            members=tuple(map(self._member, self.nodes)),
            problems=() if options.pool(self.name).slot_type or options.slot_type else self.problems,
        )

    def _member(self, node: NodeLine) -> PoolNode:
        state = node.state.lower()
        return PoolNode(
            name=node.node,
            slots=self.slots_of(node),
            slots_used=node.cpus_used if self.slot_type is SlotType.CPU else node.gpus_used,
            enabled=state.startswith(_USABLE),
            draining=state.startswith("drain"),
        )

    def complaints(self, spec: JobSpec, gpu_type: str | None, request: NodeRequest, walltime: int | None) -> list[str]:
        """Return why a job can never run in this partition."""
        complaints = []
        size = self.node_size(gpu_type)
        kind = "CPUs" if self.slot_type is SlotType.CPU else "GPUs"
        if gpu_type and not self._fitting(gpu_type):
            if any(node.gpus.unread for node in self.nodes):
                return []
            has = f"has {', '.join(self._gpu_types)}" if self._gpu_types else "names no GPU types"
            return [f"Pool {self.name} has no GPU of type {gpu_type!r}; it {has}."]
        each = request.slots_each or request.cores_each
        # If a site does not configure GPUs in Slurm, none are listed, and nothing is known of them; if the GPUs of some
        # nodes cannot be counted, not enough is known.
        if self.slot_type is not SlotType.CPU and any(node.gpus.unread for node in self.nodes):
            size = 0
        if size and each > size:
            complaints.append(f"Pool {self.name} has no node with {each} {kind}; its largest has {size}.")
        elif not request.spread and request.nodes > len(self._fitting(gpu_type)):
            there = len(self._fitting(gpu_type))
            complaints.append(f"The job needs {request.nodes} nodes, and pool {self.name} has {there}.")
        total = sum(self.slots_of(node, gpu_type) for node in self._fitting(gpu_type))
        if size and spec.slots > total:
            complaints.append(f"The job asks for {spec.slots} slots, and pool {self.name} has {total} in all.")
        if walltime is not None and self.max_walltime is not None and walltime > self.max_walltime:
            complaints.append(
                f"The job asks for {walltime} s (--time), and pool {self.name} allows {self.max_walltime} s at most."
            )
        return complaints


def partitions(nodes: Sequence[NodeLine], options: SlurmOptions) -> dict[str, Partition]:
    """Group nodes by partition, in the order in which Slurm lists them."""
    groups: dict[str, list[NodeLine]] = {}
    for node in nodes:
        groups.setdefault(node.partition, []).append(node)
    return {
        name: Partition(name, tuple(group), options.slots_are(name, any(map(_has_gpus, group))))
        for name, group in groups.items()
    }


def _has_gpus(node: NodeLine) -> bool:
    """Whether a node has GPUs. Text about GPUs without a number counts: jobs must not train on its processors."""
    return bool(node.gpus_total or node.gpus.unread)
