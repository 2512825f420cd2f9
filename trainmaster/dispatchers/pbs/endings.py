"""Explains how a PBS job ended, or why it has not begun, in words for its owner. Pure."""

from __future__ import annotations

import re
import signal

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.batch.endings import named_signal
from trainmaster.dispatchers.pbs.holds import explain_hold
from trainmaster.dispatchers.pbs.parse import PbsJob
from trainmaster.dispatchers.pbs.reasons import explain_reason
from trainmaster.dispatchers.pbs.states import PbsExit, terminated_by

# OpenPBS src/include/job.h, JOB_EXEC_*
_NEGATIVE = {
    -1: "PBS could not start the job's script",
    -2: "PBS could not start the job's script",
    -3: "PBS could not start the job, and gave it up after several tries",
    -4: "the job was lost when PBS was restarted on its node",
    -5: "the job was lost when PBS was restarted on its node",
    -6: "the job was lost when PBS was restarted on its node",
    -7: "the job could not be started again",
    -8: "the job could not be started",
    -9: "the job could not be started",
    -10: "the job's user is not known there, or PBS may not run jobs of theirs",
    -13: "the user's password could not be checked there",
    -14: "a node of the job failed",
    -16: "a site's hook refused the job",
    -17: "a site's hook refused the job",
    -18: "a site's hook put the job back",
    -19: "a site's hook deleted the job",
    -20: "the connection to a node of the job was lost",
    -21: "the job's temporary folder was there already, or open to others",
    -22: "a site's hook failed",
    -23: "the job had no Kerberos ticket there",
    -30: "the nodes of the job could not be brought together",
}
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
            return (
                f"The job used more memory than it had asked for{where} and was ended; ask for more with "
                "-l select=mem=SIZE."
            )
        case JobState.WALLTIME if job.exit_status == -28:
            return "The job used more CPU time (cput) than it had asked for and was ended."
        case JobState.WALLTIME:
            return "The job reached its time limit (walltime)."
        case JobState.PREEMPTED:
            return "PBS took the job's resources for a job of higher priority."
        case JobState.INFRASTRUCTURE:
            return _infrastructure(job, where)
        case JobState.COMPLETED:
            return "The job ended with status 0."
        case JobState.FAILED if job.exit_status in (-24, -25):
            return f"The job used more CPUs (ncpus) than it had asked for{where} and was ended."
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
    return f"{tried}; the last time it failed because {_NEGATIVE.get(job.exit_status, f'of {job.exit_status}')}."


def _cancelled(job: PbsJob) -> str:
    who = terminated_by(job)
    return f"The job was cancelled by {who}." if who else "The job was cancelled (qdel)."


def _infrastructure(job: PbsJob, where: str) -> str:
    status = job.exit_status
    if status is None:
        reason = "PBS gave the job up before it ended by itself"
    else:
        reason = _NEGATIVE.get(status, f"PBS ended the job with a status of its own, {status}")
    return f"{reason[0].upper()}{reason[1:]}{where}{_comment(job)}."


def _comment(job: PbsJob) -> str:
    comment = re.sub(r"^Job run at .*? on \(.*?\)(\+\(.*?\))*( and failed)?", "", job.comment).strip(" .")
    return f" (PBS says: {comment})" if comment else ""
