"""PreemptContext: whether this training is asked to save its work and leave."""

from __future__ import annotations

import enum
import logging
import os
from pathlib import Path
from typing import Optional

from trainmaster.core.distributed import DistributedContext
from trainmaster.core.reports import Reports
from trainmaster.runtime.run_dir import PREEMPT_ACKED, PREEMPT_FLAG

logger = logging.getLogger("trainmaster.core")


class PreemptMode(enum.Enum):
    """Which ranks check for a preemption request."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"  # the chief checks and broadcasts: every rank must call
    ChiefOnly = "CHIEF_ONLY"  # only the chief may call
    WorkersAskMaster = "WORKERS_ASK_MASTER"  # every rank checks for itself; answers may differ for a moment


class PreemptContext:
    """Preemption requests from the master, the scheduler or the walltime clock.

    Each check looks for one file. After validation metrics, the next check waits for the searcher's decision on them
    (at most 10 s, and not at all while the master is away).
    """

    def __init__(
        self,
        distributed: DistributedContext,
        mode: PreemptMode,
        run_dir: Optional[Path] = None,
        reports: Optional[Reports] = None,
    ) -> None:
        """`run_dir` is None outside a job, where no request ever comes."""
        self._distributed = distributed
        self._mode = mode
        self._run_dir = run_dir
        self._flag = "" if run_dir is None else str(run_dir / PREEMPT_FLAG)
        self._reports = reports
        self._acked = False

    def start(self) -> PreemptContext:
        """Do nothing: the runtime watches for requests. Kept for callers of Determined's class."""
        return self

    def close(self) -> None:
        """Do nothing. Kept for callers of Determined's class."""

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Check for a preemption request. Every rank must call in mode WorkersAskChief.

        Args:
            auto_ack: Acknowledge a request at once (`acknowledge_preemption_signal`).

        Returns:
            True when the training is to save its work and leave.

        Raises:
            RuntimeError: A rank other than the chief called in mode ChiefOnly.
            DistributedError: Another rank has ended, or is in another call.
        """
        if self._mode is PreemptMode.WorkersAskChief:
            asked = self._flag_is_set() if self._distributed.rank == 0 else None
            wanted = bool(self._distributed.broadcast(asked))
        else:
            if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
                raise RuntimeError("should_preempt() was called by a worker, but the preempt mode is ChiefOnly")
            wanted = self._flag_is_set()
        if wanted and auto_ack:
            self.acknowledge_preemption_signal()
        return wanted

    def acknowledge_preemption_signal(self) -> None:
        """Confirm to the master that the training will leave with its work saved. Does nothing on ranks other than the
        chief.

        Without it, a training that leaves with status 0 counts as complete.
        """
        if self._acked or self._distributed.rank != 0 or self._run_dir is None:
            return
        self._acked = True
        try:
            (self._run_dir / PREEMPT_ACKED).touch()
        except OSError as error:
            logger.warning("the acknowledgement of the preemption could not be written: %s", error)
        if self._reports is not None:
            self._reports.add("ack_preempt")

    def check_this_rank(self) -> bool:
        """Check on this rank alone, whatever the mode, and acknowledge. For the searcher's first operation.

        Returns:
            True when the training is to leave.
        """
        if not self._flag_is_set():
            return False
        self.acknowledge_preemption_signal()
        return True

    def _flag_is_set(self) -> bool:
        if self._run_dir is None:
            return False
        if self._reports is not None:
            self._reports.wait_for_decision()
        return os.path.exists(self._flag)  # after each step: `Path.exists` takes five times as long
