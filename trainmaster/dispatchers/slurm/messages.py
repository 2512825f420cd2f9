"""Slurm's messages: why a job waits or failed, in words for its owner, and what a failed command means. Pure.

Reasons are those of job_reason_string(), 20.02 to 26.05. The messages of commands decide between the dispatcher's
errors (src/common/slurm_errno.c), even when the status is 0: commands for several clusters end with 0 whatever
happened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Transient, Unreachable
from trainmaster.dispatchers.batch.messages import FailureWords
from trainmaster.dispatchers.cluster.command_runner import CommandResult

REMEMBERED = 4096  # cached results: of thousands of jobs in a listing, most have the same text


@dataclass(frozen=True)
class SlurmReason:
    """A reason in a sentence. `never`: as asked, the job cannot start unless the job or the cluster is changed."""

    sentence: str
    never: bool = False


_PLAIN = {
    "Resources": "Waits for resources: it is next when enough of them are free.",
    "Priority": "Waits behind jobs of higher priority.",
    "Dependency": "Waits for another job of the same name to end.",
    "BeginTime": "Waits for the start time that was asked for.",
    "JobHeldUser": "Held by its owner: `scontrol release` lets it go on.",
    "JobHeldAdmin": "Held by an administrator; only an administrator can release it.",
    "job requeued in held state": "Held by `scontrol requeuehold`; `scontrol release` lets it go on.",
    "JobHoldMaxRequeue": "Held by Slurm because it was requeued too often.",
    "Licenses": "Waits for a licence to become free.",
    "Reservation": "Waits for its reservation to begin.",
    "ReqNodeNotAvail": "A node it needs is down, drained or reserved.",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "The nodes it needs are down, drained or kept for partitions of higher priority."
    ),
    "PartitionDown": "Its partition is down; it starts when an administrator brings the partition up.",
    "PartitionInactive": "Its partition takes no jobs at the moment.",
    "NodeDown": "A node it needs is down.",
    "Cleaning": "Slurm is still cleaning up its last run.",
    "Prolog": "The site's prolog is running on its nodes.",
    "SystemFailure": "Slurm itself failed while it handled the job.",
    "JobArrayTaskLimit": "Waits for another task of its array.",
    "BurstBufferResources": "Waits for space in the burst buffer.",
    "BurstBufferStageIn": "Its files are being staged in.",
    "DeadLine": "Its deadline has passed.",
    "JobLaunchFailure": "Slurm could not start it, or it was ended by a signal at once.",
    "NonZeroExitCode": "Its script ended with a status other than 0.",
    "TimeLimit": "It reached its time limit.",
    "InactiveLimit": "Slurm ended it for being inactive.",
    "NodeFail": "A node it ran on failed.",
    "OutOfMemory": "It used more memory than it had asked for and was ended.",
    "RaisedSignal": "It was ended by a signal.",
    "Preempted": "Slurm took its resources for another job.",
    "ReservationDeleted": "Its reservation was deleted; it is held until it is released.",
}
_NEVER = {
    "PartitionNodeLimit": "It asks for more nodes than its partition has or allows.",
    "PartitionTimeLimit": "It asks for more time than its partition allows.",
    "PartitionConfig": "Its partition cannot ever satisfy it: too many nodes, CPUs or GPUs, or a wrong limit.",
    "BadConstraints": "No node of its partition can ever satisfy what it asks for.",
    "InvalidAccount": "Its Slurm account does not exist or is not open to its user.",
    "InvalidQOS": "Its quality of service (QOS) does not exist or is not open to its user.",
    "AccountNotAllowed": "Its Slurm account may not use this partition.",
    "QOSNotAllowed": "Its quality of service (QOS) may not use this partition.",
    "DependencyNeverSatisfied": "It depends on a job that ended in another way than it asked for.",
    "NetworkBW": "It asks for more network bandwidth than there is.",
    "AssociationJobLimit": "Its association may run no jobs at all.",
}
# Limits come in families: QOSMax..., QOSGrp..., AssocMax..., AssocGrp..., MaxMemPerLimit and so on.
_FAMILIES = (
    ("QOSMaxSubmitJob", "Its quality of service (QOS) may have no more jobs in the queue until some of them end"),
    ("AssocMaxSubmitJob", "Its account may have no more jobs in the queue until some of them end"),
    ("QOSGrp", "Waits until the group that shares its quality of service (QOS) uses less"),
    ("QOSMaxWall", "It asks for more time than its quality of service (QOS) allows"),
    ("QOSMax", "Waits because of a limit of its quality of service (QOS)"),
    ("QOSMin", "It asks for less than its quality of service (QOS) requires"),
    ("QOS", "Waits because of its quality of service (QOS)"),
    ("AssocGrp", "Waits until the group that shares its account uses less"),
    ("AssocMaxWall", "It asks for more time than its account allows"),
    ("AssocMax", "Waits because of a limit of its account"),
    ("Assoc", "Waits because of its account"),
    ("MaxMemPer", "It asks for more memory than is allowed"),
    ("MaxBillingPer", "It asks for more than its billing limit allows"),
    ("Federation", "Another cluster of the federation handles it"),
)
_FAMILY_NEVER = ("QOSMin", "QOSMaxWall", "AssocMaxWall", "MaxMemPer")
# A single job exceeds the limit, so waiting does not help.
_PER_JOB = ("PerJobLimit", "PerJob")


@lru_cache(REMEMBERED)
def explain_reason(word: str) -> SlurmReason:
    """Return Slurm's reason word as a sentence; an unknown word is repeated, "None" and "" give an empty sentence."""
    key = word.strip().strip("()").split(",", 1)[0].strip()
    if key in ("", "None", "N/A"):
        return SlurmReason("")
    if key in _NEVER:
        return SlurmReason(_NEVER[key], never=True)
    if key in _PLAIN:
        return SlurmReason(_PLAIN[key])
    for prefix, sentence in _FAMILIES:
        if key.startswith(prefix):
            never = prefix in _FAMILY_NEVER or key.endswith(_PER_JOB)
            return SlurmReason(f"{sentence} ({key}).", never=never)
    return SlurmReason(f"Slurm says: {word.strip()}.")


# The controller answered, and may accept a later attempt.
_LATER = re.compile(
    r"Rate limit exceeded|Slurm temporarily unable to accept job|Resource temporarily unavailable|"
    r"temporarily disabled|Job violates accounting/QOS policy|QOSMaxSubmitJob|AssocMaxSubmitJob|"
    r"MaxSubmitJobs|Too many jobs|Slurm queue is full|Requested nodes are busy|Ports busy|"
    r"Job submission.*disabled|Unable to allocate resources|Slurmctld is not responding|"
    r"Error writing job script|I/O error writing script|partition in unusable state|out of memory|No space left",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(sbatch|srun|scancel|squeue|sinfo|scontrol|sacct): (error: |fatal: |info: )?")


def message(stderr: str) -> str:
    """Return the last error message of a command, without its prefix; earlier lines are often only its context."""
    lines = [_NOISE.sub("", line.strip()) for line in stderr.splitlines() if line.strip()]
    if not lines:
        return "no message"
    causes = [line for line in lines if not line.startswith("Batch job submission failed")]
    summary = lines[-1].removeprefix("Batch job submission failed: ")
    return f"{causes[-1]} ({summary})" if causes and causes[-1] != lines[-1] else summary


WORDS = FailureWords(
    scheduler="Slurm",
    no_cluster=re.compile(
        r"Unable to contact slurm controller|Connection refused|No route to host|Unable to establish config|"
        r"Slurm backup controller in standby|fatal: Could not establish a configuration|Unable to resolve|"
        r"No Slurm controller|Could not find.*slurm\.conf|Munge|Invalid authentication credential|"
        r"Protocol authentication error|Unable to process configuration file|DBD",
        re.IGNORECASE,
    ),
    unknown_outcome=re.compile(
        r"Socket timed out|Zero Bytes were transmitted|Transport endpoint is not connected|Connection reset|"
        r"Unexpected message received|Message receive failure|Communication connection failure|"
        r"Insane message length|Broken pipe|Communication shutdown failure|Header lengths are longer",
        re.IGNORECASE,
    ),
    about_ended_jobs=re.compile(r"Invalid job id|already completing"),
    message=message,
)


_SIGNALLED = range(129, 193)  # how a shell, such as a site's wrapper of sbatch, reports a signal


def submit_failure(outcome: CommandResult, token: str) -> DispatcherError:
    """Return the error of a submit that printed no job id."""
    if error := WORDS.unanswered(outcome, token):
        return error
    text = outcome.stderr
    if WORDS.unknown_outcome.search(text):
        return Ambiguous(f"Slurm did not answer the submit: {message(text)}.", token=token)
    if WORDS.no_cluster.search(text):
        return Unreachable(f"Slurm cannot be reached: {message(text)}.", token=token)
    if limit := _limit(text):
        kind = Rejected if limit.never else Transient
        return kind(
            f"Slurm {'refuses the job' if limit.never else 'accepts no jobs now'}. {limit.sentence}", token=token
        )
    if _LATER.search(text):
        return Transient(f"Slurm accepts no jobs now: {message(text)}.", token=token)
    if outcome.returncode <= 0 or outcome.returncode in _SIGNALLED or not text.strip():
        # It succeeded without an id, was ended by a signal, or printed nothing: the outcome is not known.
        return Ambiguous(f"sbatch ended without a job id: {message(text)}.", token=token)
    return Rejected(f"Slurm refuses the job: {message(text)}.", token=token)


def _limit(stderr: str) -> SlurmReason | None:
    """Return the limit that sbatch names on a line of its own, before the summary that is the same for all limits. Some
    limits allow the job when others end; one that a single job exceeds never does."""
    for line in stderr.splitlines():
        word = _NOISE.sub("", line.strip())
        if re.fullmatch(r"(QOS|Assoc)[A-Z]\w+", word):
            return explain_reason(word)
    return None
