"""Runs a command on another node of the job, in place of ssh: for launchers such as Open MPI's mpirun, which start a
daemon of theirs on every node.

`python3 -m trainmaster.launchers.remote_shell HOST COMMAND...` is what such a launcher runs, on the first node. It
hands the command to the job's launcher there, over a Unix socket in the run folder, and stays until the work is over.
The launchers of the other nodes, which wait for it, get it over core's authenticated connections and run it as their
own child. Neither an ssh server nor keys are needed, and nobody but the job's own processes can have anything run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.errors import DistributedError
from trainmaster.launchers.nodes import connect_nodes
from trainmaster.launchers.place import Place

SOCKET = "remote-shell.sock"  # in the run folder of the first node
GRACE = 5.0  # seconds
POLL_INTERVAL = 0.1  # seconds
_LONGEST = 1 << 20  # bytes of a command


class FirstNode:
    """Collects mpirun's commands for the other nodes, and sends all of them once they are complete."""

    def __init__(self, place: Place, run_dir: str, names: Sequence[str]) -> None:
        """`names`: what the nodes are called in the commands, in the order of their ranks. Raises DistributedError,
        OSError."""
        self._names = list(names)
        self._commands: Dict[str, str] = {}
        self._callers: List[socket.socket] = []
        self._lock = threading.Lock()
        self._sent = False  # whether the other nodes have their commands
        self._nodes = connect_nodes(place)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(Path(run_dir) / SOCKET))
        self._listener.listen(len(self._names))
        threading.Thread(target=self._take, name="remote-shell", daemon=True).start()

    def finish(self, status: int) -> None:
        """Tell the other nodes that the work has ended with `status`. Those that got no command yet get none."""
        self._listener.close()
        try:
            self._send({})
            with self._lock:
                self._nodes.broadcast(status)
        except DistributedError as error:  # a node that failed has left already, with a reason of its own
            sys.stderr.write("not all nodes could be notified of the end: %s\n" % error)
        for caller in self._callers:
            caller.close()
        self._nodes.close()

    def _take(self) -> None:
        while True:
            try:
                caller = self._listener.accept()[0]
            except OSError:
                return
            with caller.makefile("r", encoding="utf-8") as lines:
                host, command = json.loads(lines.readline(_LONGEST))
            if host not in self._names:
                caller.sendall(b"?")
                caller.close()
                continue
            self._callers.append(caller)  # it stays until the work is over
            self._commands[host] = command
            if len(self._commands) == len(self._names) - 1:
                self._send({self._names.index(host): command for host, command in self._commands.items()})

    def _send(self, commands: Dict[int, str]) -> None:
        """Send the other nodes their commands, by their ranks; once."""
        with self._lock:
            if not self._sent:
                self._sent = True
                self._nodes.broadcast(commands)


def serve(place: Place, environment: Dict[str, str]) -> int:
    """On any other node: run the command that arrives, and wait for the end of the work. Returns the command's
    status, or that of the work where the command ended well. Raises DistributedError when the first node has ended.

    A daemon that mpirun left behind may wait for ever for a connection to it: a command that outlives the work by
    GRACE seconds is ended.
    """
    with connect_nodes(place) as nodes:
        command: Optional[str] = nodes.broadcast(None).get(place.rank)
        if command is None:
            return int(nodes.broadcast(None))
        process = subprocess.Popen(["sh", "-c", command], env=environment, start_new_session=True)
        end = _EndOfWork(nodes)
        while end.is_alive() and process.poll() is None:
            end.join(POLL_INTERVAL)
        try:
            returncode = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            returncode = 0  # the work's own status is the reason
        if returncode:
            return 128 - returncode if returncode < 0 else returncode
        return end.status()


class _EndOfWork(threading.Thread):
    """Waits until the first node reports how the work ended."""

    def __init__(self, nodes: DistributedContext) -> None:
        super().__init__(name="end-of-work", daemon=True)
        self._nodes = nodes
        self._result: Union[int, DistributedError, None] = None
        self.start()

    def run(self) -> None:
        try:
            self._result = int(self._nodes.broadcast(None))
        except DistributedError as error:
            self._result = error

    def status(self) -> int:
        """Wait for it. Raises DistributedError when the first node has ended."""
        self.join()
        if isinstance(self._result, int):
            return self._result
        raise self._result or DistributedError("the first node did not report how the work ended")


def main(arguments: Sequence[str]) -> int:
    """Forward a command; returns when the work is over."""
    run_dir = os.environ.get("TRAINMASTER_RUN_DIR")
    if len(arguments) < 2 or not run_dir:
        sys.stderr.write("usage, in a job: python3 -m trainmaster.launchers.remote_shell HOST COMMAND...\n")
        return 64
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        try:
            caller.connect(str(Path(run_dir) / SOCKET))
            caller.sendall((json.dumps([arguments[0], " ".join(arguments[1:])]) + "\n").encode("utf-8"))
            if caller.recv(1):  # ends when the work is over
                sys.stderr.write("%s is no node of this job: leave --host and --hostfile out\n" % arguments[0])
                return 255
        except OSError as error:
            sys.stderr.write("%s cannot be asked to run anything: %s\n" % (arguments[0], error))
            return 255  # as ssh does
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
