"""`python3 -m trainmaster.launchers.mpirun [MPIRUN OPTIONS --] PROGRAM ARGS...`: run a program of Open MPI (4 or 5),
one rank for each slot.

The first node runs the image's own `mpirun`, which has its daemons on the other nodes started by
`trainmaster.launchers.remote_shell` in place of ssh. Programs of MPICH's family need no mpirun:
`trainmaster.launchers.script` starts them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from typing import Dict, List, Mapping, Sequence

from trainmaster.core.errors import DistributedError
from trainmaster.launchers.place import (
    MISSING,
    LaunchError,
    Misused,
    Place,
    common_environment,
    final_status,
    find_place,
    program_of,
    ranked,
    refuse,
    run_dir,
    run_to_end,
    split_arguments,
)
from trainmaster.launchers.remote_shell import FirstNode, serve
from trainmaster.launchers.wrap_rank import STREAMS

USAGE = "usage: python3 -m trainmaster.launchers.mpirun [MPIRUN OPTIONS --] PROGRAM ARGS..."
# By these mpirun would take a scheduler's own way to the other nodes, which is not there in a container.
_SCHEDULERS = re.compile(r"(SLURM|PBS|PMI|PMI2|PMIX)_|SLURMD_")


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns the status of the rank that failed first, or mpirun's."""
    place = find_place()
    try:
        options, script = split_arguments(arguments, "mpirun")
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            raise LaunchError("there is no mpirun in this image: set environment.image to one that has Open MPI")
        environment = mpi_environment(place, common_environment(place))
        names = node_names(place)
        command = build_command(mpirun, place, names, options, program_of(script))
        folder = run_dir()
        if place.nodes == 1 or folder is None:
            return run_to_end(command, environment)
        if place.rank:
            return final_status(serve(place, environment))
        first = FirstNode(place, folder, names)
        status = run_to_end(command, environment)
        first.finish(status)
        return status
    except Misused as error:
        return refuse(str(error), 64, USAGE)
    except LaunchError as error:
        return refuse(str(error), MISSING)
    except DistributedError as error:
        return refuse("the nodes of this MPI program cannot meet: %s" % error, 1)


def node_names(place: Place) -> List[str]:
    """Names of the nodes for mpirun: it has to recognise its own, the others are known to the launchers."""
    return [socket.gethostname(), *("node-%d" % rank for rank in range(1, place.nodes))]


def build_command(
    mpirun: str, place: Place, names: Sequence[str], options: Sequence[str], program: Sequence[str]
) -> List[str]:
    """Build mpirun's argument vector. `program`: the words that run one rank."""
    hosts = ",".join("%s:%d" % host for host in zip(names, place.slots))  # noqa: B905 - as long as each other
    return [
        mpirun,
        "--host",
        hosts,
        "-np",
        str(sum(place.slots)),
        *options,
        *ranked("OMPI_COMM_WORLD_RANK", program),
    ]


def mpi_environment(place: Place, common: Mapping[str, str]) -> Dict[str, str]:
    """Build the environment of Open MPI: PRTE_MCA_* is for release 5, OMPI_MCA_* for 4 and, in part, 5."""
    environment = {name: value for name, value in common.items() if not _SCHEDULERS.match(name)}
    agent = "%s -m trainmaster.launchers.remote_shell" % sys.executable
    wanted = {
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        STREAMS: str(os.getpid()),
    }
    if os.geteuid() == 0:
        wanted["OMPI_ALLOW_RUN_AS_ROOT"] = wanted["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    if (
        place.interface not in (None, "lo") and place.nodes > 1
    ):  # mpirun leaves the loopback out, even where it is named
        for name in ("PRTE_MCA_prte_if_include", "OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include"):
            wanted[name] = place.interface
    return {**wanted, **environment}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
