"""Explains how a PBS job ended, or why it has not begun, in words for its owner. Pure."""

from __future__ import annotations

import re
import signal

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.batch.endings import named_signal
from trainmaster.dispatchers.pbs.cluster_ends import BY_STATUS, deleted_by, find
from trainmaster.dispatchers.pbs.holds import explain_hold
from trainmaster.dispatchers.pbs.parse import PbsJob
from trainmaster.dispatchers.pbs.reasons import explain_reason
from trainmaster.dispatchers.pbs.states import PbsExit

_MAKES_ROOM = 45  # JOB_SUBSTATE_SCHSUSP
_AGAIN = -3  # carries no reason


def in_words(state: JobState, job: PbsJob) -> str:
    """Return a sentence on a job in `state`."""
    where = f" on {', '.join(job.nodes)}" if job.nodes else ""
    exit = PbsExit.of(job.exit_status)
    match state:
        case JobState.QUEUED | JobState.HELD:
            return _waiting(state, job)
        case JobState.SUSPENDED if job.substate == _MAKES_ROOM:
            return "PBS has suspended the job to run another one of higher priority; it goes on afterwards."
        case JobState.SUSPENDED:
            return "PBS has suspended the job."
        case JobState.CANCELLED:
            return _cancelled(job)
        case JobState.OUT_OF_MEMORY:
            return f"{_own(job)}{where} and was ended; ask for more with -l select=mem=SIZE."
        case JobState.WALLTIME if job.exit_status == -28:
            return f"{_own(job)} and was ended."
        case JobState.WALLTIME | JobState.PREEMPTED:
            return f"{_own(job)}."
        case JobState.INFRASTRUCTURE:
            return _infrastructure(job, where)
        case JobState.COMPLETED:
            return "The job ended with status 0."
        case JobState.FAILED if job.exit_status in (-24, -25):
            return f"{_own(job)}{where} and was ended."
        case JobState.FAILED if exit.signal == int(signal.SIGKILL):
            return (
                f"The job was ended by {named_signal(exit.signal)}{where}: it may have used more memory than it had "
                "asked for, or someone ended it."
            )
        case JobState.FAILED if exit.signal:
            return f"The job was ended by {named_signal(exit.signal)}{where}."
        case JobState.FAILED if exit.code == 127:
            return (
                f"The job ended with status 127{where}: a command was not found. When it left no output at all, its "
                "job folder is not visible there."
            )
        case JobState.FAILED:
            return f"The job ended with status {exit.code}{where}."
        case JobState.UNKNOWN if job.state == "M":
            return "The job was moved to another PBS server, which trainmaster does not query."
        case _:
            return ""


def _waiting(state: JobState, job: PbsJob) -> str:
    if state is JobState.HELD:
        return explain_hold(job)
    if job.state == "W":
        return "Waits for the start time that was asked for (-a)."
    return f"{explain_reason(job.comment).sentence} {_tried(job)}".strip()


def _tried(job: PbsJob) -> str:
    """Return the outcome of earlier attempts to start a job that waits again."""
    if not job.run_count or job.exit_status is None or job.exit_status >= 0:
        return ""
    tried = f"PBS has tried {'once' if job.run_count == 1 else f'{job.run_count} times'} to start it"
    if job.exit_status == _AGAIN:
        return f"{tried}."
    return f"{tried}; the last time it failed because {_cause_of(job.exit_status)}."


def _cancelled(job: PbsJob) -> str:
    who = deleted_by(job)
    return f"The job was cancelled by {who}." if who else "The job was cancelled (qdel)."


def _infrastructure(job: PbsJob, where: str) -> str:
    reason = _own(job) or f"PBS ended the job with a status of its own, {job.exit_status}"
    return f"{reason[0].upper()}{reason[1:]}{where}{_comment(job)}."


def _own(job: PbsJob) -> str:
    """Return why PBS itself ended the job, as part of a sentence; empty when no row of its table says so."""
    found = find(job)
    return found.cause if found else ""


def _cause_of(status: int) -> str:
    return BY_STATUS[status].cause if status in BY_STATUS else f"of {status}"


def _comment(job: PbsJob) -> str:
    comment = re.sub(r"^Job run at .*? on \(.*?\)(\+\(.*?\))*( and failed)?", "", job.comment).strip(" .")
    return f" (PBS says: {comment})" if comment else ""
