"""A program with only a master's dispatcher, for tests that kill it: submits the jobs of its arguments, then waits.

python local_master.py ROOT SLOTS [TOKEN:SLOTS:PROGRAM ...]
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from trainmaster.dispatchers.base import JobSpec, Setup, SlotType
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.local import LocalDispatcher

root, slots, *jobs = sys.argv[1:]
setup = Setup(name="here", prefix="t-", job_root=Path(root), options={"slots": int(slots), "cancel_grace": 1})
dispatcher = LocalDispatcher(setup)
for job in jobs:
    token, wanted, program = job.split(":")
    dispatcher.submit(
        JobSpec(token, token, "default", int(wanted), SlotType.CPU, files=programs.runtime(getattr(programs, program)))
    )
print("submitted", flush=True)
threading.Event().wait()
