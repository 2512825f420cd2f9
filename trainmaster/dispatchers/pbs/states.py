"""Maps PBS's state letters and exit statuses to job states of the master. Pure.

Sources: OpenPBS src/include/job.h (JOB_SUBSTATE_*, JOB_EXEC_*), src/resmom/mom_start.c (a script that a signal ended
has 256 plus the signal's number); pbs_job_attributes(7B) for the letters. A letter that is not known maps to UNKNOWN.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.pbs.cluster_ends import TERMINATED, account_of, deleted_by, find
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
_ROOT = "root"  # administrators, and what PBS does by its own commands
SIGNALLED = 256


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
    if own := find(job):
        return own.state
    if status is not None and status < 0:
        return JobState.INFRASTRUCTURE
    if job.substate == TERMINATED or deleted_by(job):
        return JobState.CANCELLED
    return JobState.COMPLETED if status == 0 else JobState.FAILED


def canceller(job: PbsJob) -> Canceller:
    """Who cancelled a job; the server's own names are not among those that get here (`cluster_ends`)."""
    account = account_of(deleted_by(job))
    return Canceller.PERSON if account not in ("", _ROOT) else Canceller.UNKNOWN


def preempted(job: PbsJob) -> bool:
    """Whether the scheduler deleted it in favour of another job (preempt_order D)."""
    own = find(job)
    return own is not None and own.state is JobState.PREEMPTED
