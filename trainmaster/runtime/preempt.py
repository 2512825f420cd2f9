"""Preemption requests (from the master, a signal, or the walltime clock), passed to core through a flag file."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Callable, Optional

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import CallFailed, MasterError
from trainmaster.runtime.files import replace_file
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.run_dir import PREEMPT_ACKED, PREEMPT_FLAG

_POLL = 300  # seconds of one long poll; where a proxy or a firewall cuts it short, reports bring the request too
_FIRST = 2.0  # seconds after the lease, whose answer is as new: a short job never polls
_CEILING = 60.0  # seconds between polls of a master that is away: answers to reports bring the request meanwhile
_SOONEST = 1.0  # seconds between two answers that came at once: a proxy may cut long polls short


class Preemption:
    """Holds the reason of the first request. Thread-safe."""

    def __init__(self, run_dir: str, log: Callable[[str], None], report_to_master: Callable[[str], None]) -> None:
        self._flag = os.path.join(run_dir, PREEMPT_FLAG)
        self._acked = os.path.join(run_dir, PREEMPT_ACKED)
        self._log = log
        self._report_to_master = report_to_master
        self._lock = threading.Lock()
        self._reason: Optional[str] = None

    @property
    def reason(self) -> Optional[str]:
        return self._reason

    @property
    def acked(self) -> bool:
        """Whether the user's code has acknowledged the request."""
        return os.path.exists(self._acked)

    def request_by_master(self, reason: str) -> None:
        """Record a request that came from the master."""
        self._request(reason)

    def request_here(self, reason: str) -> None:
        """Record a request that came from a signal or the clock, and report it to the master."""
        if self._request(reason):
            self._report_to_master(reason)

    def _request(self, reason: str) -> bool:
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            replace_file(self._flag, json.dumps({"reason": reason}))
        self._log("this job is asked to save its work and leave (%s)" % reason)
        return True


class PreemptWatch(threading.Thread):
    """Long-polls the master until there is a request."""

    def __init__(self, master: MasterCalls, allocation_id: str, preemption: Preemption) -> None:
        super().__init__(name="preemption", daemon=True)
        self._master = master
        self._path = "/api/v1/allocations/%s/signals/preemption?timeout_seconds=%d" % (allocation_id, _POLL)
        self._preemption = preemption
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop polling. Does not wait for a poll that is under way."""
        self._stopped.set()

    def run(self) -> None:
        backoff = Backoff(ceiling=_CEILING)
        self._stopped.wait(_FIRST)
        while not self._stopped.is_set() and self._preemption.reason is None:
            asked = time.monotonic()
            try:
                answer = self._master.call("GET", self._path, timeout=_POLL + 15.0)
            except MasterError as error:
                asked_for = error.retry_after if isinstance(error, CallFailed) else None
                self._stopped.wait(backoff.next(asked_for))
                continue
            backoff.reset()
            if isinstance(answer, dict) and answer.get("preempt"):
                if not self._stopped.is_set():
                    self._preemption.request_by_master(str(answer.get("reason") or "master"))
                return
            self._stopped.wait(max(0.0, _SOONEST - (time.monotonic() - asked)))


def signal_reason(end_time: Optional[float], grace: float, now: float) -> str:
    """Return the reason behind a SIGUSR2: `walltime` when the end is near, else `scheduler`. Slurm sends its warning up
    to 60 s early (sbatch(1), --signal)."""
    if end_time is not None and end_time - now <= grace + 90:
        return "walltime"
    return "scheduler"
