"""Converts a number of slots into a request to Slurm for nodes, GPUs and CPUs. Pure arithmetic.

The rows of Determined 0.38's table (its HPC launching documentation) hold: with N slots and `slots_per_node` = spn,
the number of nodes is ceil(N / spn), or N when spn is not given. Fewer GPUs than spn are not rounded up to it. Where
the size of a pool's nodes is known, a missing spn is filled in with the largest divisor of N that a node can hold: the
same number of slots on every node, on as few nodes as possible. Without that knowledge a pool with `tres_supported`
leaves the spreading to Slurm (`--gpus=N`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.batch.requests import BadOption, even_share

GPU_TYPE = r"[^\s,:()=`$;<>\"'\x00-\x1f\x7f]{1,128}"  # any text that the lists of Slurm can hold


class GpuDialect(enum.Enum):
    """How GPUs are requested at a site."""

    TRES = "tres"  # select/cons_tres: --gpus-per-node, --gpus
    GRES = "gres"  # --gres=gpu:N on every node; works everywhere that has GresTypes=gpu
    NONE = "none"  # Slurm does not know the GPUs: whole nodes

    @classmethod
    def of(cls, *, tres_supported: bool, gres_supported: bool) -> GpuDialect:
        """From Determined's two switches; TRES needs GRES."""
        if not gres_supported:
            return cls.NONE
        return cls.TRES if tres_supported else cls.GRES


@dataclass(frozen=True)
class NodeRequest:
    """Nodes and GPUs that a job requests. `nodes` is the number of nodes; with `spread` it is only the most it may use.

    `gpus_total` is for all nodes together, `slots_each` for one node (GPUs or CPU cores), 0 when it is left open.
    """

    nodes: int
    gpus_total: int = 0
    slots_each: int = 0
    cores_each: int = 0
    spread: bool = False

    @property
    def multi_node(self) -> bool:
        """Whether the script may have to start processes on other nodes."""
        return self.nodes > 1


def plan(
    slots: int,
    slot_type: SlotType,
    dialect: GpuDialect,
    *,
    slots_per_node: int | None = None,
    single_node: bool = False,
    node_size: int | None = None,
) -> NodeRequest:
    """Return the request for `slots` slots. `node_size`: slots of the pool's largest node, None when not known."""
    if slots == 0:
        return NodeRequest(nodes=1, cores_each=1)
    each = slots_per_node
    if single_node or (each and slot_type is not SlotType.CPU and slots < each):
        each = slots
    elif each is None and node_size:
        each = even_share(slots, node_size)
    if slot_type is SlotType.CPU:
        nodes = _ceil(slots, each or 1)
        return NodeRequest(nodes=nodes, slots_each=each or 0, cores_each=each or 1)
    if dialect is GpuDialect.TRES:
        if each is None:
            return NodeRequest(nodes=slots, gpus_total=slots, spread=True)
        return NodeRequest(nodes=_ceil(slots, each), gpus_total=slots, slots_each=each)
    nodes = _ceil(slots, each or 1)
    if dialect is GpuDialect.GRES:
        return NodeRequest(nodes=nodes, slots_each=each or 1)
    return NodeRequest(nodes=nodes)


def sbatch_words(
    request: NodeRequest, slot_type: SlotType, dialect: GpuDialect, gpu_type: str | None = None
) -> list[str]:
    """Return the request as sbatch options: one task on each node, which starts the workers of that node."""
    kind = f"{gpu_type}:" if gpu_type else ""
    if request.spread:
        return [f"--nodes=1-{request.nodes}", "--ntasks-per-node=1", f"--gpus={kind}{request.gpus_total}"]
    words = [f"--nodes={request.nodes}", f"--ntasks={request.nodes}", "--ntasks-per-node=1"]
    if request.cores_each:
        words.append(f"--cpus-per-task={request.cores_each}")
    if slot_type is not SlotType.CPU and request.slots_each:
        if dialect is GpuDialect.TRES:
            # Not --gpus-per-task: Slurm 22.05.5 to 22.05.8 refuse it (SchedMD bug 15857).
            words.append(f"--gpus-per-node={kind}{request.slots_each}")
        elif dialect is GpuDialect.GRES:
            words.append(f"--gres=gpu:{kind}{request.slots_each}")
    return words


def check_gpus(options: Mapping[str, str | None], request: NodeRequest, slots: int, slot_type: SlotType) -> None:
    """Refuse GPUs beyond the slots, which `max_slots` and policies count. Raises BadOption."""
    most = 0 if slot_type is SlotType.CPU else request.slots_each or slots
    for name in ("gpus-per-task", "gpus-per-socket"):
        number = sum(int(part.rpartition(":")[2]) for part in (options.get(name) or "0").split(","))
        if number > most:
            raise BadOption(
                f"slurm option --{name} asks for {number} GPUs on a node where the job has {most} slots; set "
                "resources.slots_per_trial and slurm.slots_per_node"
            )


def merge_gres(words: list[str], gres: str | None) -> list[str]:
    """Return `words` with the user's other generic resources merged into the only `--gres` that sbatch accepts."""
    if not gres:
        return words
    merged = [f"{word},{gres}" if word.startswith("--gres=") else word for word in words]
    return merged if merged != words else [*words, f"--gres={gres}"]


def _ceil(slots: int, each: int) -> int:
    return -(-slots // each)
