"""Converts a number of slots into a request to PBS: `-l select=N:ncpus=...:ngpus=...` and `-l place=scatter`. Pure.

The PBS rows of Determined 0.38's table hold: with N slots and `slots_per_node` = spn, the number of chunks is
ceil(N / spn), or N when spn is not given. Fewer GPUs than spn are not rounded up to it. Where the size of a queue's
nodes is known, a missing spn is filled in with the largest divisor of N that a node can hold: the same number of slots
on every node, on as few nodes as possible. PBS has no way to leave the spreading open (Slurm's `--gpus=N`), so that
`tres_supported` changes nothing.

One chunk is one node of the trial. `mpiprocs=1` makes PBS list its host exactly once, whatever else is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.batch.requests import even_share

# Resources of the whole job, not of a chunk (pbs_resources(7B)).
JOB_WIDE = ("walltime", "min_walltime", "max_walltime", "soft_walltime", "cput", "pcput", "pmem", "pvmem", "file",
            "nice", "software", "max_run_subjobs", "preempt_targets", "site", "exec_vnode")  # fmt: skip
# Resources of a node, given in every chunk (pbs_resources(7B)).
PER_CHUNK = ("ncpus", "mem", "vmem", "ompthreads", "arch", "host", "vnode", "aoe", "eoe", "accelerator",
             "accelerator_model", "accelerator_memory", "naccelerators", "hbmem")  # fmt: skip


@dataclass(frozen=True)
class ChunkRequest:
    """Equal chunks that a job requests. 0 slots in a chunk: PBS does not know the slots, or the job needs none."""

    chunks: int
    cpus: int = 1
    gpus: int = 0

    @property
    def multi_node(self) -> bool:
        """Whether the script has to start processes on other hosts."""
        return self.chunks > 1


def plan(
    slots: int,
    slot_type: SlotType,
    *,
    gres_supported: bool = True,
    slots_per_node: int | None = None,
    single_node: bool = False,
    node_size: int | None = None,
) -> ChunkRequest:
    """Return the request for `slots` slots. `node_size`: slots of the queue's largest node, None when not known;
    `gres_supported`: PBS knows the GPUs."""
    if slots == 0:
        return ChunkRequest(chunks=1)
    each = slots_per_node
    if single_node or (each and slot_type is not SlotType.CPU and slots < each):
        each = slots
    elif each is None and node_size:
        each = even_share(slots, node_size)
    chunks = -(-slots // (each or 1))
    if slot_type is SlotType.CPU:
        return ChunkRequest(chunks=chunks, cpus=each or 1)
    return ChunkRequest(chunks=chunks, gpus=(each or 1) if gres_supported else 0)


def select(request: ChunkRequest, gpu_resource: str, extra: Mapping[str, str]) -> str:
    """Return the chunks as PBS writes them; `extra` are the user's further resources of every node, which may raise
    ncpus."""
    cpus = extra.get("ncpus", str(request.cpus))
    words = [str(request.chunks), f"ncpus={cpus}"]
    if request.gpus:
        words.append(f"{gpu_resource}={request.gpus}")
    words.append("mpiprocs=1")
    words += [f"{name}={value}" for name, value in extra.items() if name != "ncpus"]
    return ":".join(words)
