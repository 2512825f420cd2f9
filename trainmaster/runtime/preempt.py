"""The wish that this job leaves: from the master, from a signal, from the clock; told to core by a flag
file."""

from __future__ import annotations

import os
import time

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import MasterError
from trainmaster.runtime.master import Master
from trainmaster.runtime.plain_json import dumps
from trainmaster.runtime.threads import Event, Lock, Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

FLAG = "preempt"  # in the run folder; JSON {"reason"}
ACKED = "preempt_acked"  # in the run folder; made by core when the user's code has seen the flag
_POLL = 60  # seconds of one long poll
_FIRST = 2.0  # seconds after the lease, which has just told: a short job never asks
_SOONEST = 1.0  # seconds between two answers that came at once: a proxy may cut long polls short


class Preemption:
    """Holds the first reason for leaving. Thread-safe."""

    def __init__(self, run_dir: str, say: Callable[[str], None], tell_master: Callable[[str], None]) -> None:
        self._flag = os.path.join(run_dir, FLAG)
        self._acked = os.path.join(run_dir, ACKED)
        self._say = say
        self._tell_master = tell_master
        self._lock = Lock()
        self._reason: Optional[str] = None

    @property
    def reason(self) -> Optional[str]:
        return self._reason

    @property
    def acked(self) -> bool:
        """True once the user's code has seen the flag."""
        return os.path.exists(self._acked)

    def request_by_master(self, reason: str) -> None:
        """The master wants the job to leave."""
        self._request(reason)

    def request_here(self, reason: str) -> None:
        """A signal or the clock wants the job to leave; the master is told."""
        if self._request(reason):
            self._tell_master(reason)

    def _request(self, reason: str) -> bool:
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            fresh = self._flag + ".new"
            with open(fresh, "w", encoding="utf-8") as file:
                file.write(dumps({"reason": reason}))
            os.replace(fresh, self._flag)
        self._say("this job is asked to save its work and leave (%s)" % reason)
        return True


class PreemptWatch(Thread):
    """Asks the master with long polls until there is a reason to leave."""

    def __init__(self, master: Master, allocation_id: str, preemption: Preemption) -> None:
        super().__init__()
        self._master = master
        self._path = "/api/v1/allocations/%s/signals/preemption?timeout_seconds=%d" % (allocation_id, _POLL)
        self._preemption = preemption
        self._enough = Event()

    def stop(self) -> None:
        """Ask no more. A poll that is under way is not waited for."""
        self._enough.set()

    def run(self) -> None:
        backoff = Backoff()
        self._enough.wait(_FIRST)
        while not self._enough.is_set() and self._preemption.reason is None:
            asked = time.monotonic()
            try:
                answer = self._master.call("GET", self._path, timeout=_POLL + 15.0)
            except MasterError:
                self._enough.wait(backoff.next())
                continue
            backoff.reset()
            if isinstance(answer, dict) and answer.get("preempt"):
                if not self._enough.is_set():
                    self._preemption.request_by_master(str(answer.get("reason") or "master"))
                return
            self._enough.wait(max(0.0, _SOONEST - (time.monotonic() - asked)))


def signal_reason(end_time: Optional[float], grace: float, now: float) -> str:
    """Why SIGUSR2 came: `walltime` when the end is near, else `scheduler`. Slurm sends its warning up to 60 s
    early (sbatch(1), --signal)."""
    if end_time is not None and end_time - now <= grace + 90:
        return "walltime"
    return "scheduler"
