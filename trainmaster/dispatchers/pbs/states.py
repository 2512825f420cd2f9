"""Maps PBS's state letters and exit statuses to job states of the master. Pure.

Sources: OpenPBS src/include/job.h (JOB_SUBSTATE_*, JOB_EXEC_*), src/resmom/mom_start.c (a script that a signal ended
has 256 plus the signal's number); pbs_job_attributes(7B) for the letters. A letter that is not known maps to UNKNOWN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.pbs.parse import PbsJob

_LETTERS = {
    "Q": JobState.QUEUED,
    "H": JobState.HELD,
    "W": JobState.QUEUED,  # waits for its requested start time
    "T": JobState.QUEUED,  # on its way to another queue or server
    "R": JobState.RUNNING,
    "B": JobState.RUNNING,  # an array of which something runs
    "S": JobState.SUSPENDED,
    "U": JobState.SUSPENDED,  # because a user works at the workstation
    "E": JobState.FINISHING,  # the script has ended, or is being ended
    # What becomes of it is known to another server only.
    "M": JobState.UNKNOWN,
}
_ENDED = frozenset("FCX")  # C is Torque's, X a part of an array
_STARTING = frozenset({41, 71, 72})  # handed to the node, provisioning, waiting for the other nodes
_TERMINATED = 91
SIGNALLED = 256

_NEGATIVE = {
    -1: JobState.INFRASTRUCTURE,
    -2: JobState.INFRASTRUCTURE,
    -3: JobState.INFRASTRUCTURE,
    -4: JobState.INFRASTRUCTURE,
    -5: JobState.INFRASTRUCTURE,
    -6: JobState.INFRASTRUCTURE,
    -7: JobState.INFRASTRUCTURE,
    -8: JobState.INFRASTRUCTURE,
    -9: JobState.INFRASTRUCTURE,
    -24: JobState.FAILED,
    -25: JobState.FAILED,
    -26: JobState.OUT_OF_MEMORY,
    -27: JobState.OUT_OF_MEMORY,
    -28: JobState.WALLTIME,
    -29: JobState.WALLTIME,
}


@dataclass(frozen=True)
class PbsExit:
    """How a script ended: an exit code, or the signal that ended it."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def of(cls, status: int | None) -> PbsExit:
        """From Exit_status; a negative one is PBS's own word, not the script's."""
        if status is None or status < 0:
            return cls()
        if status > SIGNALLED:
            return cls(signal=status - SIGNALLED)
        return cls(code=status)


def map_state(job: PbsJob) -> JobState:
    """The state behind PBS's letter, its finer number and, for an ended job, its exit status."""
    letter = job.state.upper()  # the whole word: TRANSMOGRIFYING is no T
    if letter in _ENDED:
        return _ended(job)
    state = _LETTERS.get(letter, JobState.UNKNOWN)
    if state is JobState.RUNNING and job.substate in _STARTING:
        return JobState.STARTING
    return state


def _ended(job: PbsJob) -> JobState:
    status = job.exit_status
    if preempted(job):
        return JobState.PREEMPTED
    if status is not None and status < 0:
        return _NEGATIVE.get(status, JobState.INFRASTRUCTURE)
    if job.substate == _TERMINATED or terminated_by(job):
        return JobState.CANCELLED
    if status is None:
        # Nobody deleted it, and it never ran: PBS gave it up (a node that vanished, a hook).
        return JobState.INFRASTRUCTURE
    return JobState.COMPLETED if status == 0 else JobState.FAILED


def terminated_by(job: PbsJob) -> str:
    """Return who deleted it, "alice@host"; empty when it was not deleted, or by an unknown user."""
    found = re.search(r"\bterminated by (\S+)", job.comment)
    return found[1] if found else ""


def preempted(job: PbsJob) -> bool:
    """True when the scheduler deleted it in favour of another job (preempt_order D)."""
    return bool(re.search(r"\bpreempted\b", job.comment, re.IGNORECASE)) or terminated_by(job).lower().startswith(
        ("scheduler@", "pbs_sched@")
    )
