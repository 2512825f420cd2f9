"""`python3 -m trainmaster.launchers.torchrun [TORCHRUN OPTIONS --] SCRIPT ARGS...`: train with
torch.distributed.

Runs `torch.distributed.run` on this node with the addresses of the rendezvous: every slot is a rank, the first node
is the master, a rank that dies ends all. What stands before `--` goes to torchrun as it is. SCRIPT may be a
Python file or any program (`python3 train.py`). Outside of a job it trains on this machine alone. The grammar
is that of `determined.launch.torch_distributed` 0.38.1, with its `--trial MODULE:CLASS`.
"""

from __future__ import annotations

import sys
from typing import List, Sequence

from trainmaster.launchers.place import (
    MISSING,
    LaunchError,
    Misused,
    Place,
    common_environment,
    find_place,
    need,
    program_of,
    ranked,
    refuse,
    run_to_end,
    split_arguments,
)

USAGE = "usage: python3 -m trainmaster.launchers.torchrun [TORCHRUN OPTIONS --] SCRIPT ARGS..."


def build_command(place: Place, options: Sequence[str], program: Sequence[str]) -> List[str]:
    """Build torchrun's argument vector. `program`: the words that run one worker."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(place.nodes),
        "--nproc_per_node",
        str(place.here),
        "--node_rank",
        str(place.rank),
        "--max_restarts",
        "0",
        "--master_addr",
        place.chief,
        "--master_port",
        str(place.torch_port),
        # Later ones win, so that the user has the last word.
        *options,
        "--no_python",
        *ranked("RANK", program),
    ]


def main(arguments: Sequence[str]) -> int:
    """Train; returns the status of the rank that failed first, or torchrun's."""
    try:
        options, script = split_arguments(arguments, "torchrun")
        need("torch", "torchrun")
    except Misused as error:
        return refuse(str(error), 64, USAGE)
    except LaunchError as error:
        return refuse(str(error), MISSING)
    place = find_place()
    return run_to_end(build_command(place, options, program_of(script)), common_environment(place))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
