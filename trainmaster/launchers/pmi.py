"""Process management for MPI programs: the server side of PMI-1, over which ranks exchange their addresses.

A program of MPICH's family asks for its rank, puts its address into a key-value space, waits in a barrier for all
others, and reads their addresses. Here each node's launcher serves its own workers over socket pairs, whose ends they
inherit; at a barrier the launchers give each other what was put, over core's authenticated connections between the
nodes.

The protocol: lines `cmd=NAME key=value ...`, as MPICH's own `src/pmi` and Hydra speak it (version 1.1). Spawning
further processes and publishing names are refused.
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import threading
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.errors import DistributedError
from trainmaster.launchers.nodes import connect_nodes
from trainmaster.launchers.place import Place

_LONGEST = 1 << 16  # bytes of a line
_LENGTHS = "kvsname_max=256 keylen_max=256 vallen_max=1024"


class Pmi:
    """Serves the workers of this node. `counts`: workers of each node; `on_failure(sentence)` is called, in a thread,
    when the nodes cannot go on together."""

    def __init__(self, place: Place, counts: Sequence[int], on_failure: Callable[[str], None]) -> None:
        self._place = place
        self._counts = list(counts)
        self._name = _name_of_job(os.environ, place)
        self._on_failure = on_failure
        self._space: Dict[str, str] = {"PMI_process_mapping": process_mapping(counts)}
        self._put: Dict[str, str] = {}  # since the last barrier
        self._ours: List[socket.socket] = []
        self._theirs: List[socket.socket] = []
        self._rest: Dict[socket.socket, bytes] = {}
        self._waiting: List[socket.socket] = []  # in a barrier
        self._nodes: Optional[DistributedContext] = None
        self._thread = threading.Thread(target=self._serve, name="pmi", daemon=True)
        self._closing = False
        for _ in range(self._counts[place.rank]):
            ours, theirs = socket.socketpair()
            self._ours.append(ours)
            self._theirs.append(theirs)

    def worker(self, local: int) -> Tuple[Dict[str, str], int]:
        """Environment variables for a worker, and the open file that it must inherit under the same number."""
        descriptor = self._theirs[local].fileno()
        rank = sum(self._counts[: self._place.rank]) + local
        variables = {"PMI_FD": str(descriptor), "PMI_RANK": str(rank), "PMI_SIZE": str(sum(self._counts))}
        return variables, descriptor

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def __enter__(self) -> Pmi:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: object) -> None:
        self._closing = True
        for theirs in self._theirs:
            theirs.close()
        # The end of the connection shows the others that this node has failed.
        if self._nodes is not None:
            self._nodes.close()
        self._thread.join(5.0)

    def _serve(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for ours in self._ours:
                    selector.register(ours, selectors.EVENT_READ)
                while selector.get_map():
                    for key, _ in selector.select():
                        assert isinstance(key.fileobj, socket.socket)
                        if not self._receive(key.fileobj):
                            selector.unregister(key.fileobj)
        except DistributedError as error:
            if not self._closing:
                self._on_failure("the nodes of this MPI program cannot meet: %s" % error)
        finally:
            for ours in self._ours:
                ours.close()

    def _receive(self, worker: socket.socket) -> bool:
        """Read and answer a worker's lines; False once it has ended."""
        try:
            block = worker.recv(_LONGEST)
        except OSError:
            block = b""
        text = self._rest.pop(worker, b"") + block
        if not block or len(text) > 2 * _LONGEST:
            return False
        *lines, rest = text.split(b"\n")
        self._rest[worker] = rest
        for line in lines:
            answer = self._answer(worker, line.decode("utf-8", "replace"))
            if answer:
                self._send(worker, answer)
        return True

    def _send(self, worker: socket.socket, answer: str) -> None:
        try:
            worker.sendall(answer.encode("utf-8") + b"\n")
        except OSError:
            return  # it has ended, which is noticed elsewhere

    def _answer(self, worker: socket.socket, line: str) -> str:
        fields = dict(_pair(word) for word in line.split(" ") if "=" in word)
        command = fields.get("cmd", "")
        if command == "put":
            self._put[fields.get("key", "")] = fields.get("value", "")
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            value = self._put.get(fields.get("key", ""), self._space.get(fields.get("key", "")))
            if value is None:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            return "cmd=get_result rc=0 msg=success value=" + value
        if command == "barrier_in":
            self._waiting.append(worker)
            if len(self._waiting) == len(self._ours):
                self._barrier()
            return ""
        if line == "endcmd":
            return "cmd=spawn_result rc=-1 msg=spawning_is_not_supported"
        return _PLAIN.get(command, "").replace("SIZE", str(sum(self._counts))).replace("NAME", self._name)

    def _barrier(self) -> None:
        """Exchange what the workers have put with the other nodes, then release the workers: all of this node wait."""
        if self._place.nodes > 1:
            if self._nodes is None:
                self._nodes = connect_nodes(self._place)
            for put in self._nodes.allgather(self._put):
                self._space.update(put)
        else:
            self._space.update(self._put)
        self._put = {}
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            self._send(worker, "cmd=barrier_out rc=0")


# Commands whose answer is always the same; SIZE is the number of workers, NAME that of the job.
_PLAIN: Mapping[str, str] = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes rc=0 " + _LENGTHS,
    "get_appnum": "cmd=appnum rc=0 appnum=0",
    "get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=NAME",
    "get_universe_size": "cmd=universe_size rc=0 size=SIZE",
    "finalize": "cmd=finalize_ack rc=0",
    "publish_name": "cmd=publish_result rc=-1 msg=not_supported",
    "unpublish_name": "cmd=unpublish_result rc=-1 msg=not_supported",
    "lookup_name": "cmd=lookup_result rc=-1 msg=not_supported",
}


def _name_of_job(environ: Mapping[str, str], place: Place) -> str:
    """Return a name that no other job of this node has: MPICH names shared memory after it, which stays when a job is
    killed, and cannot be made a second time."""
    parts = [environ.get("DET_CLUSTER_ID", ""), environ.get("DET_ALLOCATION_ID", ""), str(place.torch_port)]
    return re.sub(r"[^A-Za-z0-9.-]", "_", "-".join(["trainmaster", *parts]))


def process_mapping(counts: Sequence[int]) -> str:
    """Describe which workers share a node, as MPICH reads it: groups of (first node, nodes, workers of each)."""
    groups: List[List[int]] = []
    for node, count in enumerate(counts):
        if groups and groups[-1][2] == count:
            groups[-1][1] += 1
        else:
            groups.append([node, 1, count])
    return "(vector,%s)" % ",".join("(%d,%d,%d)" % tuple(group) for group in groups)


def _pair(word: str) -> Tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
