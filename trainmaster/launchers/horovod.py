"""`python3 -m trainmaster.launchers.horovod [--autohorovod] [HOROVODRUN OPTIONS --] SCRIPT ARGS...`: train with
Horovod.

Every node starts its own workers, one for each slot; they find each other over Horovod's Gloo controller, whose
rendezvous server, Horovod's own, runs on the first node. `horovodrun` would start the workers through ssh, which a job
does not need. What stands before `--` are options of horovodrun; those that tune Horovod have their effect
(`--fusion-threshold-mb`, `--timeline-filename`, `--autotune`), those that place workers are refused. With
`--autohorovod` a job of one slot runs the script alone, without Horovod. The grammar is that of
`determined.launch.horovod` 0.38.1.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import io
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Sequence

from trainmaster.launchers.admission import enter, guarded, node_secret
from trainmaster.launchers.place import (
    MISSING,
    LaunchError,
    Misused,
    Place,
    common_environment,
    find_place,
    need,
    program_of,
    refuse,
    run_to_end,
    split_arguments,
)
from trainmaster.launchers.workers import Workers, worker_environments

USAGE = "usage: python3 -m trainmaster.launchers.horovod [--autohorovod] [HOROVODRUN OPTIONS --] SCRIPT ARGS..."
GLOO_TIMEOUT = 240  # seconds; Horovod's own 30 are too few for workers that first read their data
_SERVER_PATIENCE = 600.0  # seconds that the first node's server is waited for: imports from a busy file system are slow
# Attributes of horovodrun's parsed options -> why they have no place in a job.
_DECIDED = {
    "hosts": "--hosts: the scheduler decides which nodes a job has",
    "hostfile": "--hostfile: the scheduler decides which nodes a job has",
    "ssh_port": "--ssh-port: workers are started without ssh",
    "ssh_identity_file": "--ssh-identity-file: workers are started without ssh",
    "use_mpi": "--mpi: workers meet over Gloo; programs of MPI are started by trainmaster.launchers.script",
    "use_jsrun": "--jsrun: workers meet over Gloo",
    "host_discovery_script": "--host-discovery-script: elastic training is not supported",
    "output_filename": "--output-filename: the lines of every rank are in the trial's log",
}


def main(arguments: Sequence[str]) -> int:
    """Train; returns the status of the rank that failed first."""
    place = find_place()
    words = list(arguments)
    alone = "--autohorovod" in words[:1] and sum(place.slots) == 1
    if "--autohorovod" in words[:1]:
        del words[0]
    try:
        options, script = split_arguments(words, "horovodrun")
        if alone:
            return run_to_end(program_of(script), common_environment(place))
        need("horovod", "this launcher")
        common = {**common_environment(place), **settings(place, options)}
        slots = host_assignments(place)
        if place.rank == 0:
            serve(place, slots)
        else:
            wait_for_server(place)
    except Misused as error:
        return refuse(str(error), 64, USAGE)
    except LaunchError as error:
        return refuse(str(error), MISSING)
    first = sum(place.slots[: place.rank])
    environments = [
        {**environment, **slot_environment(slots[first + local])}
        for local, environment in enumerate(worker_environments(common, place.slots, place.rank))
    ]
    return Workers(program_of(script)).run(environments)


def settings(place: Place, options: Sequence[str]) -> Dict[str, str]:
    """Build the environment that all workers of this node share: the controller's, and what the options of horovodrun
    set.

    Raises Misused for options that horovodrun does not know or that have no place in a job.
    """
    launch = importlib.import_module("horovod.runner.launch")
    parser = importlib.import_module("horovod.runner.common.util.config_parser")
    output = io.StringIO()
    try:
        with _argv(["horovodrun", "-np", str(sum(place.slots)), *options, "true"]), contextlib.redirect_stderr(output):
            parsed: Any = launch.parse_args()
    except SystemExit:
        last = (output.getvalue().strip().splitlines() or ["it does not say why"])[-1]
        raise Misused("the options for horovodrun are wrong: %s" % last) from None
    for name, why in _DECIDED.items():
        if getattr(parsed, name, None):
            raise Misused("horovodrun's option is not for use in a job: %s" % why)
    tuned: Dict[str, str] = {}
    parser.set_env_from_args(tuned, parsed)
    interface = next(iter(parsed.nics or ()), None) or ("lo" if place.nodes == 1 else place.interface)
    variables = {
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT),
        **{name: str(value) for name, value in tuned.items()},
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "[%s]" % _server(place) if ":" in _server(place) else _server(place),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(place.launcher_port),
    }
    if interface:
        variables["HOROVOD_GLOO_IFACE"] = interface
    return variables


def host_assignments(place: Place) -> List[Any]:
    """Compute Horovod's own assignment of ranks to slots, in the order of the ranks. Nodes go by their numbers,
    because several may be on one machine."""
    hosts = importlib.import_module("horovod.runner.common.util.hosts")
    named = ",".join("node-%d:%d" % (rank, slots) for rank, slots in enumerate(place.slots))
    return list(hosts.get_host_assignments(hosts.parse_hosts(named), sum(place.slots)))


def slot_environment(slot: Any) -> Dict[str, str]:
    """Build the variables that tell a worker its rank, from its assignment."""
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "hostname")
    return {"HOROVOD_" + name.upper(): str(getattr(slot, name)) for name in names}


def serve(place: Place, slots: Sequence[Any]) -> None:
    """Start Horovod's rendezvous server in a thread. Raises LaunchError."""
    http_server = importlib.import_module("horovod.runner.http.http_server")
    family = socket.AF_INET6 if ":" in _server(place) else socket.AF_INET
    server_class = type("Server", (http_server.RendezvousHTTPServer,), {"address_family": family})
    handler = guarded(http_server.RendezvousHandler, node_secret())
    try:
        server = server_class((_server(place), place.launcher_port), handler, 0)
    except OSError as error:
        raise LaunchError(
            "Horovod's rendezvous server cannot listen on %s port %d: %s"
            % (_server(place), place.launcher_port, error.strerror)
        ) from error
    server.init(slots)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def wait_for_server(place: Place) -> None:
    """Wait until the first node's server has admitted this node: Horovod itself gives up after a second. Raises
    LaunchError."""
    deadline = time.monotonic() + _SERVER_PATIENCE
    while True:
        try:
            enter(_server(place), place.launcher_port, node_secret())
            return
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise LaunchError(
                    "Horovod's rendezvous server on the first node (%s port %d) did not answer within %d s: %s"
                    % (_server(place), place.launcher_port, _SERVER_PATIENCE, error)
                ) from error
        time.sleep(0.1)


def _server(place: Place) -> str:
    return place.chief if place.nodes > 1 else "127.0.0.1"


@contextlib.contextmanager
def _argv(words: List[str]) -> Iterator[None]:
    """Replace the process's own arguments, which horovodrun's parser reads."""
    kept = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
