"""Maps failed Slurm commands to dispatcher errors: rejected, a limit, an unknown outcome, or an unreachable cluster.

Slurm's messages decide (src/common/slurm_errno.c), even when the status is 0: commands for several clusters end with 0
whatever happened.
"""

from __future__ import annotations

import re

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Transient, Unreachable
from trainmaster.dispatchers.batch.failures import FailureWords
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.slurm.reasons import SlurmReason, explain_reason

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
