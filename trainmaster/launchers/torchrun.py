"""`python3 -m trainmaster.launchers.torchrun [TORCHRUN OPTIONS --] SCRIPT ARGS...`: train with
torch.distributed.

Runs `torch.distributed.run` on this node with what the rendezvous said: every slot is a rank, the first node
is the master, a rank that dies ends all. What stands before `--` goes to torchrun as it is. SCRIPT may be a
Python file or any program (`python3 train.py`). Outside of a job it trains on this machine alone. The grammar
is that of `determined.launch.torch_distributed` 0.38.1, without its `--trial`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import List, Sequence, Tuple

from trainmaster.core.info import get_cluster_info
from trainmaster.launchers.wrap_rank import first_failure, ranks_folder

USAGE = "usage: python3 -m trainmaster.launchers.torchrun [TORCHRUN OPTIONS --] SCRIPT ARGS..."
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Place:
    """This node among the job's nodes."""

    nodes: int = 1
    rank: int = 0
    slots: int = 1
    chief: str = "127.0.0.1"
    port: int = 29400


def split_arguments(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Options for torchrun, and the script with its arguments. Raises ValueError with a sentence.

    A `--` divides them when only options (and their values) stand before it; a script's own `--` is left
    alone.
    """
    words = list(arguments)
    if words and words[0].startswith("-"):
        if "--trial" in words:
            raise ValueError("--trial is not supported: give a script that uses the Core API")
        if "--" not in words:
            raise ValueError("options for torchrun are ended by --")
        end = words.index("--")
        overrides, script = words[:end], words[end + 1 :]
    else:
        overrides, script = [], words
    if not script:
        raise ValueError("there is no script to run")
    return overrides, script


def build_command(
    place: Place, overrides: Sequence[str], script: Sequence[str], *, python: str, is_program: bool
) -> List[str]:
    """torchrun's argument vector. `is_program`: the script's first word can be run by itself."""
    program = list(script) if is_program else [python, "-u", *script]
    return [
        python,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(place.nodes),
        "--nproc_per_node",
        str(place.slots),
        "--node_rank",
        str(place.rank),
        "--max_restarts",
        "0",
        "--master_addr",
        place.chief,
        "--master_port",
        str(place.port),
        # Later ones win, so that the user has the last word.
        *overrides,
        "--no_python",
        python,
        "-m",
        "trainmaster.launchers.wrap_rank",
        "RANK",
        "--",
        *program,
    ]


def find_place() -> Place:
    """This node's place, from the job's rendezvous; alone on one machine outside of a job."""
    info = get_cluster_info()
    if info is None or info.rendezvous_info is None or info.runtime_info is None:
        return Place()
    return Place(
        nodes=len(info.container_addrs),
        rank=info.container_rank,
        slots=max(1, info.container_slot_counts[info.container_rank]),
        chief=info.container_addrs[0],
        port=info.runtime_info.torch_port,
    )


def main(arguments: Sequence[str]) -> int:
    """Train; returns the status of the rank that failed first, or torchrun's."""
    try:
        overrides, script = split_arguments(arguments)
    except ValueError as error:
        sys.stderr.write("%s\n%s\n" % (error, USAGE))
        return 64
    place = find_place()
    environment = dict(os.environ)
    environment.setdefault("DET_CHIEF_IP", place.chief)
    interface = environment.get("DET_INTER_NODE_NETWORK_INTERFACE")
    if interface:
        environment.setdefault("NCCL_SOCKET_IFNAME", interface)
        environment["GLOO_SOCKET_IFNAME"] = interface
    command = build_command(place, overrides, script, python=sys.executable, is_program=_is_program(script[0]))
    child = subprocess.Popen(command, env=environment)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: child.send_signal(number))
    returncode = child.wait()
    if returncode == 0:
        return 0
    failed = first_failure(ranks_folder())
    if failed is not None:
        return failed
    return 128 - returncode if returncode < 0 else returncode


def _is_program(word: str) -> bool:
    """Whether to run it by itself: a Python file is given to Python unless it is marked executable and has a
    path."""
    if word.endswith(".py"):
        return os.sep in word and os.access(word, os.X_OK)
    return os.sep in word or shutil.which(word) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
