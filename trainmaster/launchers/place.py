"""Shared by all launchers: this node's place among the job's nodes, the grammar of arguments, the check for a
missing framework, and running one program to its end."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from trainmaster.core.info import get_cluster_info
from trainmaster.runtime.ranks import first_failure

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MISSING = 78  # EX_CONFIG of sysexits.h: the image is not the right one


class Misused(ValueError):
    """Wrong arguments; the message is for the user."""


class LaunchError(Exception):
    """No worker can be started here; the message names what is wrong and what to do."""


@dataclass(frozen=True)
class Place:
    """This node among the job's nodes; without a job, this machine alone with one slot."""

    addresses: Sequence[str] = ("127.0.0.1",)  # of all nodes, in the order of their ranks
    slots: Sequence[int] = (1,)  # of all nodes
    rank: int = 0  # this node's
    torch_port: int = 29400  # on the first node, as the next
    launcher_port: int = 29401
    worker_ports: Sequence[Sequence[int]] = field(default=((29402,),))  # of all nodes, one for each slot
    interface: Optional[str] = None  # that the nodes talk over, where it is known

    @property
    def nodes(self) -> int:
        return len(self.addresses)

    @property
    def chief(self) -> str:
        """Address of the first node."""
        return self.addresses[0]

    @property
    def here(self) -> int:
        """Slots of this node."""
        return self.slots[self.rank]


def find_place() -> Place:
    """Read this node's place from the job's rendezvous; outside of a job, this machine alone."""
    info = get_cluster_info()
    if info is None or info.rendezvous_info is None or info.runtime_info is None:
        return Place()
    runtime = info.runtime_info
    return Place(
        addresses=tuple(info.container_addrs),
        slots=tuple(max(1, count) for count in info.container_slot_counts),
        rank=info.container_rank,
        torch_port=runtime.torch_port,
        launcher_port=runtime.launcher_port,
        worker_ports=tuple(tuple(ports) for ports in runtime.worker_ports),
        interface=os.environ.get("DET_INTER_NODE_NETWORK_INTERFACE") or os.environ.get("GLOO_SOCKET_IFNAME"),
    )


def split_arguments(arguments: Sequence[str], options_for: str) -> Tuple[List[str], List[str]]:
    """Split into options for the framework's launcher `options_for`, and the script with its arguments. Raises
    Misused.

    A `--` divides them when only options (and their values) stand before it; a script's own `--` is left alone.
    """
    words = list(arguments)
    if words and words[0].startswith("-"):
        if words[0] == "--trial":
            words.insert(0, "--")
        if "--" not in words:
            raise Misused("options for %s are ended by --" % options_for)
        end = words.index("--")
        options, script = words[:end], words[end + 1 :]
    else:
        options, script = [], words
    if not script:
        raise Misused("there is no script to run")
    if script[0] == "--trial":
        if len(script) != 2:
            raise Misused("--trial is followed by MODULE:CLASS and nothing else")
        # A trial class of Determined's, which its own launchers take.
        script = [sys.executable, "-u", "-m", "trainmaster.pytorch.entrypoint", script[1]]
    return options, script


def need(module: str, what_for: str) -> None:
    """Check that the image has a Python package. Raises LaunchError."""
    if importlib.util.find_spec(module) is None:
        raise LaunchError(
            "%s is not in this image: %s needs the Python package %r for %s; set environment.image to one that has it"
            % (module, what_for, module, sys.executable)
        )


def program_of(script: Sequence[str]) -> List[str]:
    """Build the words that run `script`: a Python file is given to Python unless it is marked executable and has a
    path, a program is run by itself."""
    word = script[0]
    if word.endswith(".py"):
        by_itself = os.sep in word and os.access(word, os.X_OK)
    else:
        by_itself = os.sep in word or shutil.which(word) is not None
    return list(script) if by_itself else [sys.executable, "-u", *script]


def ranked(variable: str, program: Sequence[str]) -> List[str]:
    """Build the words that run a worker whose rank is in the environment variable `variable`."""
    return [sys.executable, "-m", "trainmaster.launchers.wrap_rank", variable, "--", *program]


def common_environment(place: Place) -> Dict[str, str]:
    """Build the workers' environment: this process's own, and the variables about the network between nodes that
    all frameworks read."""
    environment = dict(os.environ)
    environment.setdefault("DET_CHIEF_IP", place.chief)
    interface = environment.get("DET_INTER_NODE_NETWORK_INTERFACE")
    if interface:
        environment.setdefault("NCCL_SOCKET_IFNAME", interface)
        environment["GLOO_SOCKET_IFNAME"] = interface
    return environment


def run_to_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a framework's own launcher, and forward signals to it. Returns the status of the rank that failed first,
    or its own."""
    child = subprocess.Popen(list(command), env=dict(environment))
    for number in FORWARDED:
        signal.signal(number, lambda number, _: child.send_signal(number))
    returncode = child.wait()
    return final_status(128 - returncode if returncode < 0 else returncode)


def final_status(own: int) -> int:
    """Return the status to leave with: 0, that of the rank that failed first, or `own` where no rank left one."""
    failed = first_failure(run_dir()) if own else None
    return failed.status if failed is not None else own


def run_dir() -> Optional[str]:
    """Return the run folder, in which launchers write how ranks ended; None outside of a job."""
    return os.environ.get("TRAINMASTER_RUN_DIR") or None


def refuse(message: str, status: int, usage: str = "") -> int:
    """Print why nothing is started; returns the status. The sentence comes last: the trial's reason quotes it."""
    sys.stderr.write((usage + "\n" if usage else "") + message + "\n")
    return status
