"""Sends a checkpoint from a process of its own, at low priority: a training that continues shares no lock with it.

`python -m trainmaster.core.sender` reads what to send as JSON from its standard input, and answers with JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import List

from trainmaster.core.errors import CheckpointConflict, CheckpointError, UnusableStorage
from trainmaster.core.store_calls import StoreCalls
from trainmaster.core.transfer import Sent, Upload
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.prctl import die_with_parent

NICE = 15  # how far below the training's own priority
_ERRORS = {kind.__name__: kind for kind in (CheckpointError, CheckpointConflict, UnusableStorage)}


def send(calls: StoreCalls, storage_id: str, source: Path, names: List[str]) -> Sent:
    """Send files, given relative to a folder; folders are passed over. Raises CheckpointError."""
    return Upload(lambda verb, body: calls.call(storage_id, verb, body), source).run(
        [name for name in names if not name.endswith("/")]
    )


def send_apart(calls: StoreCalls, storage_id: str, source: Path, names: List[str]) -> Sent:
    """`send`, in another process, which ends with this one. Raises CheckpointError."""
    order = {
        "master": calls.master.arguments,
        "allocation_id": calls.allocation_id,
        "storage_id": storage_id,
        "source": str(source),
        "names": names,
    }
    process = subprocess.Popen(
        [sys.executable, "-S", "-m", "trainmaster.core.sender", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    answer, _ = process.communicate(json.dumps(order).encode())
    try:
        found = json.loads(answer.decode())
    except ValueError:
        raise CheckpointError(
            "the process that sends checkpoint %s has ended with status %d" % (storage_id, process.returncode)
        ) from None
    if "error" in found:
        raise _ERRORS.get(found["kind"], CheckpointError)(found["error"])
    return Sent(found["sent"], found["reused"], found["seconds"])


def main() -> None:
    """Send what standard input says."""
    die_with_parent(int(sys.argv[1]))
    os.nice(NICE)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    order = json.load(sys.stdin)
    given = order["master"]
    master = MasterCalls(given["url"], given["token"], url_file=given["url_file"], url_owner=given["url_owner"])
    try:
        sent = send(
            StoreCalls(master, order["allocation_id"]), order["storage_id"], Path(order["source"]), order["names"]
        )
        answer = dict(sent.values())
    except (CheckpointError, OSError) as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
