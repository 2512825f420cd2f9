"""PreemptContext: is this training to save its work and leave?"""

from __future__ import annotations

import enum
import logging
from pathlib import Path
from typing import Optional

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.reports import Reports
from trainmaster.runtime.preempt import ACKED, FLAG

logger = logging.getLogger("trainmaster.core")


class PreemptMode(enum.Enum):
    """Who looks."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"  # the chief looks, all hear it: every rank must call
    ChiefOnly = "CHIEF_ONLY"  # only the chief may call
    WorkersAskMaster = "WORKERS_ASK_MASTER"  # every rank looks for itself; answers may differ for a moment


class PreemptContext:
    """Tells whether the training is to leave, because the master, the scheduler or the clock wants it so.

    Looking costs a look for a file; after validation metrics the next look waits for the searcher's decision
    on them (10 s at most, not at all while the master is away).
    """

    def __init__(
        self,
        distributed: DistributedContext,
        mode: PreemptMode,
        run_dir: Optional[Path] = None,
        reports: Optional[Reports] = None,
    ) -> None:
        """`run_dir` is None outside a job: then nobody ever wants the training to leave."""
        self._distributed = distributed
        self._mode = mode
        self._run_dir = run_dir
        self._reports = reports
        self._acked = False

    def start(self) -> PreemptContext:
        """Nothing to do here: the runtime watches. Kept for callers of Determined's class."""
        return self

    def close(self) -> None:
        """Nothing to do here either."""

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """True when the training is to save its work and leave. With `auto_ack` the master is told that it
        was heard.

        Raises RuntimeError when a worker calls in mode ChiefOnly.
        """
        if self._mode is PreemptMode.WorkersAskChief:
            asked = self._look() if self._distributed.rank == 0 else None
            wanted = bool(self._distributed.broadcast(asked))
        else:
            if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
                raise RuntimeError("should_preempt() was called by a worker, but the preempt mode is ChiefOnly")
            wanted = self._look()
        if wanted and auto_ack:
            self.acknowledge_preemption_signal()
        return wanted

    def acknowledge_preemption_signal(self) -> None:
        """Say that the training has heard it and will leave with its work saved; without this a training that
        ends with status 0 counts as complete. Only the chief's word counts."""
        if self._acked or self._distributed.rank != 0 or self._run_dir is None:
            return
        self._acked = True
        try:
            (self._run_dir / ACKED).touch()
        except OSError as error:
            logger.warning("the runtime could not be told of the acknowledgement: %s", error)
        if self._reports is not None:
            self._reports.add("ack_preempt")

    def look_now(self) -> bool:
        """Look on this rank alone, whatever the mode, and acknowledge. For the searcher's first operation."""
        if not self._look():
            return False
        self.acknowledge_preemption_signal()
        return True

    def _look(self) -> bool:
        if self._run_dir is None:
            return False
        if self._reports is not None:
            self._reports.settle()
        return (self._run_dir / FLAG).exists()
