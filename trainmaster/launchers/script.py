"""`python3 -m trainmaster.launchers.script [--per-node --] PROGRAM ARGS...`: run any program, one worker for each slot
(or, with `--per-node`, one for each node).

Each worker finds in its environment who it is and where the first one is, under the names that the field's frameworks
read: see `worker_variables`. Programs of MPI that speak PMI-1 (MPICH, Intel MPI, MVAPICH) start without mpiexec; where
the scheduler itself started as many tasks as there are workers, its own PMI is left in place.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Dict, List, Mapping, Sequence

from trainmaster.launchers.place import (
    Misused,
    Place,
    common_environment,
    find_place,
    program_of,
    refuse,
    split_arguments,
)
from trainmaster.launchers.pmi import Pmi
from trainmaster.launchers.workers import Workers, worker_environments
from trainmaster.runtime.process import pmi_descriptor

USAGE = "usage: python3 -m trainmaster.launchers.script [--per-node --] PROGRAM ARGS..."
_PMI = re.compile(r"(PMI|PMI2|PMIX)_")  # variables of a scheduler's own process management


def main(arguments: Sequence[str]) -> int:
    """Run the workers of this node; returns the status of the one that failed first."""
    try:
        options, script = split_arguments(arguments, "this launcher")
        unknown = [option for option in options if option != "--per-node"]
        if unknown:
            raise Misused("there is no option %s" % unknown[0])
    except Misused as error:
        return refuse(str(error), 64, USAGE)
    place = find_place()
    per_node = "--per-node" in options
    counts = [1] * place.nodes if per_node else list(place.slots)
    common = common_environment(place)
    managed = any(_PMI.match(name) for name in common) and set(counts) == {1}
    if not managed:
        common = {name: value for name, value in common.items() if not _PMI.match(name)}
    environments = [
        {**environment, **worker_variables(place, counts, environment, per_node=per_node)}
        for environment in worker_environments(common, counts, place.rank)
    ]
    workers = Workers(program_of(script))
    if managed:
        return workers.run(environments, [pmi_descriptor(common)])
    with Pmi(place, counts, workers.give_up) as pmi:
        descriptors = []
        for local, environment in enumerate(environments):
            variables, descriptor = pmi.worker(local)
            environment.update(variables)
            descriptors.append([descriptor])
        pmi.start()
        return workers.run(environments, descriptors)


def worker_variables(
    place: Place, counts: Sequence[int], worker: Mapping[str, str], *, per_node: bool
) -> Dict[str, str]:
    """Return what a worker finds beside its rank: `worker` is its environment with that. `counts`: workers of each
    node.

    * MASTER_ADDR and MASTER_PORT: a port of the first node that is free for the job (torch.distributed, and others)
    * JAX_COORDINATOR_ADDRESS, and JAX_LOCAL_DEVICE_IDS where a worker has one slot of several
    * TF_CONFIG: all as workers, none of them a chief apart (tf.distribute.MultiWorkerMirroredStrategy)
    * in a job of Slurm SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS: as if srun had started each worker
    """
    variables = {
        "MASTER_ADDR": place.chief,
        "MASTER_PORT": str(place.torch_port),
        "JAX_COORDINATOR_ADDRESS": _host_port(place.chief, place.torch_port),
    }
    if not per_node and place.here > 1:
        variables["JAX_LOCAL_DEVICE_IDS"] = worker["LOCAL_RANK"]
    if sum(counts) > 1:
        addresses: List[str] = []
        for node, count in enumerate(counts):
            addresses += [_host_port(place.addresses[node], port) for port in place.worker_ports[node][:count]]
        task = {"type": "worker", "index": int(worker["RANK"])}
        variables["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    if "SLURM_JOB_ID" in worker:
        variables["SLURM_PROCID"] = worker["RANK"]
        variables["SLURM_LOCALID"] = worker["LOCAL_RANK"]
        variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = worker["WORLD_SIZE"]
    return variables


def _host_port(host: str, port: int) -> str:
    return "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
