"""Starts the workers of this node, watches them, and ends all of them when one fails."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from typing import Dict, List, Mapping, Sequence, Tuple, Union

from trainmaster.launchers.place import FORWARDED, final_status, ranked, refuse

GRACE = 20.0  # seconds between SIGTERM and SIGKILL for the workers that are left when one has failed

Event = Tuple[str, int, int]  # ("ended", worker, status as subprocess has it), ("signal", number, 0), ("failed", 0, 1)


class Workers:
    """The workers of one node. Each is `program` with an environment of its own, its rank in the variable RANK."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program = list(program)
        self._children: Dict[int, "subprocess.Popen[bytes]"] = {}
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()

    def run(self, environments: Sequence[Mapping[str, str]], descriptors: Sequence[Sequence[int]] = ()) -> int:
        """Start one worker for each environment and wait for all. `descriptors`: open files that a worker is given
        beside its streams. Returns 0, or the status of the rank that failed first."""
        for number in FORWARDED:
            signal.signal(number, lambda number, _: self._events.put(("signal", number, 0)))
        for worker, environment in enumerate(environments):
            # No thread reads what a worker prints: that is wrap_rank's work, a process that dies with this one.
            child = subprocess.Popen(
                ranked("RANK", self._program),
                env=dict(environment),
                pass_fds=descriptors[worker] if descriptors else (),
            )
            self._children[worker] = child
            threading.Thread(target=self._wait, args=(worker, child), daemon=True).start()
        return final_status(self._watch())

    def give_up(self, sentence: str) -> None:
        """End all workers for the reason that `sentence` gives. Can be called from any thread."""
        self._events.put(("failed", 0, refuse(sentence, 1)))

    def _wait(self, worker: int, child: "subprocess.Popen[bytes]") -> None:
        self._events.put(("ended", worker, child.wait()))

    def _watch(self) -> int:
        """Wait until all have ended. The status of the first that failed, as a shell has it."""
        first = 0
        patience: Union[float, None] = None
        while self._children:
            try:
                kind, number, returncode = self._events.get(timeout=patience)
            except queue.Empty:
                self._signal(signal.SIGKILL)
                patience = None
                continue
            if kind == "signal":
                self._signal(number)
                continue
            if kind == "ended":
                del self._children[number]
            if returncode and not first:
                first = 128 - returncode if returncode < 0 else returncode
                self._signal(signal.SIGTERM)
                patience = GRACE
        return first

    def _signal(self, number: int) -> None:
        for child in self._children.values():
            child.send_signal(number)


def worker_environments(common: Mapping[str, str], slots: Sequence[int], node: int) -> List[Dict[str, str]]:
    """Build the environment of each worker on node number `node`, one worker for each of `slots` (workers by node).

    The names are torchrun's, with DeepSpeed's and Horovod's for the same numbers.
    """
    first = sum(slots[:node])
    return [
        {
            **common,
            "RANK": str(first + local),
            "WORLD_SIZE": str(sum(slots)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(slots[node]),
            "LOCAL_SIZE": str(slots[node]),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(len(slots)),
            "NODE_RANK": str(node),
            "CROSS_RANK": str(node),
            "CROSS_SIZE": str(len(slots)),
        }
        for local in range(slots[node])
    ]
