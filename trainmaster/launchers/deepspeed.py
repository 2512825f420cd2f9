"""`python3 -m trainmaster.launchers.deepspeed [DEEPSPEED OPTIONS --] SCRIPT ARGS...`: train with DeepSpeed.

Runs `deepspeed.launcher.launch`, the part of DeepSpeed's launcher that starts the workers of one machine, on each node
by itself: `deepspeed` would start it on the other nodes through pdsh or ssh, which a job does not need. Every slot is a
rank, the first node is the master, a rank that dies ends all. What stands before `--` goes to that program as it is
(`--bind_cores_to_rank`, `--module`); SCRIPT may be a Python file or any program. The grammar is that of
`determined.launch.deepspeed` 0.38.1.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Dict, List, Mapping, Sequence, Union

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

USAGE = "usage: python3 -m trainmaster.launchers.deepspeed [DEEPSPEED OPTIONS --] SCRIPT ARGS..."
# Options of `deepspeed` that place workers: here the scheduler has done that.
_DECIDED = frozenset(
    ["--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num_nodes", "--num_gpus", "--launcher", "--no_ssh"]
)


def world_info(place: Place, environ: Mapping[str, str]) -> str:
    """Encode the devices of all nodes as DeepSpeed's launcher takes them: base64 of a JSON object, in the order of the
    nodes.

    It sets CUDA_VISIBLE_DEVICES again from this node's list: that has the devices which the job was given.
    """
    world: Dict[str, List[Union[int, str]]] = {
        "node-%d" % rank: list(range(slots)) for rank, slots in enumerate(place.slots)
    }
    visible = [device for device in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    if len(visible) == place.here:
        world["node-%d" % place.rank] = list(visible)
    return base64.urlsafe_b64encode(json.dumps(world).encode("ascii")).decode("ascii")


def build_command(
    place: Place, options: Sequence[str], program: Sequence[str], environ: Mapping[str, str]
) -> List[str]:
    """Build the argument vector of DeepSpeed's launcher for this node. `program`: the words that run one worker.

    Raises Misused for an option that is not of this part of DeepSpeed's launcher.
    """
    for option in options:
        name = option.partition("=")[0]
        if name in _DECIDED:
            raise Misused("%s is not for use in a job: slots_per_trial and resource_pool decide where it runs" % name)
    return [
        sys.executable,
        "-m",
        "deepspeed.launcher.launch",
        "--world_info=" + world_info(place, environ),
        "--node_rank=%d" % place.rank,
        "--master_addr=" + place.chief,
        "--master_port=%d" % place.torch_port,
        *options,
        "--no_python",
        "--no_local_rank",
        *ranked("RANK", program),
    ]


def main(arguments: Sequence[str]) -> int:
    """Train; returns the status of the rank that failed first, or that of DeepSpeed's launcher."""
    place = find_place()
    environment = common_environment(place)
    try:
        options, script = split_arguments(arguments, "deepspeed")
        command = build_command(place, options, program_of(script), os.environ)
        need("deepspeed", "this launcher")
    except Misused as error:
        return refuse(str(error), 64, USAGE)
    except LaunchError as error:
        return refuse(str(error), MISSING)
    return run_to_end(command, environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
