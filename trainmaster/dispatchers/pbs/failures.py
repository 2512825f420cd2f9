"""Maps failed PBS commands to dispatcher errors: rejected, a limit, an unknown outcome, or an unreachable cluster.

PBS's commands end with the error number of src/include/pbs_error.h modulo 256 (15001 -> 153 unknown job, 15010 -> 162
system error, 15139 -> 35 job in the history); the messages decide where several errors share a number.
"""

from __future__ import annotations

import re

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Transient, Unreachable
from trainmaster.dispatchers.batch.failures import FailureWords
from trainmaster.dispatchers.cluster.command_runner import CommandResult

# The server answered, and may accept a later attempt.
_LATER = re.compile(
    r"Maximum number of jobs already in|limit on (the )?number of jobs|would exceed .*limit|"
    r"Resources temporarily unavailable|Try the request again|Queue is not enabled|No free connections|"
    r"connection table full|Internal server error|failed to save job|No space left|Too many submit|max_queued|"
    r"queued_jobs_threshold|Cannot allocate memory",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(qsub|qstat|qdel|qsig|qselect|qmgr|pbsnodes): (error: |fatal: )?")


def message(stderr: str) -> str:
    """Return a command's error message, without its prefix and without usage lines."""
    lines: list[str] = []
    for line in stderr.splitlines():
        if line.startswith("usage:"):
            break
        if line.strip():
            lines.append(_NOISE.sub("", line.strip()))
    return "; ".join(dict.fromkeys(lines[-2:])).rstrip(".") or "no message"


WORDS = FailureWords(
    scheduler="PBS",
    no_cluster=re.compile(
        r"Connection refused|cannot connect to server|Couldn't connect to cluster|Unknown Host|Could not resolve|"
        r"No route to host|Network is unreachable|No default server|not a PBS server|could not connect to server|"
        r"pbs_iff|Invalid [Cc]redential|Unable to authenticate|auth.*(failed|error)|No server to connect to|"
        r"error (reading|opening|loading) .*pbs\.conf|pbsconf error|server shutting down|No support for requested",
        re.IGNORECASE,
    ),
    unknown_outcome=re.compile(
        r"End of File|Premature end of message|Connection reset|Broken pipe|Connection timed out|[Tt]imed out|"
        r"Protocol \(ASN\.1\) error|Batch protocol error|Communication failure|Too many.*retries",
    ),
    about_ended_jobs=re.compile(
        r"Unknown Job Id|Job has finished|Request invalid for state of job|[Aa]lready .*exit|Finished"
    ),
    message=message,
)


def submit_failure(outcome: CommandResult, token: str) -> DispatcherError:
    """Return the error of a submit that printed no job id."""
    if error := WORDS.unanswered(outcome, token):
        return error
    text = outcome.stderr
    if "Access from host not allowed" in text:  # PBSE_BADHOST, whose message continues "or unknown host"
        return Rejected(
            "PBS refuses the job: its queue, or its server, accepts none from this machine (acl_hosts). Choose another "
            "pool, or ask an administrator of PBS to add the machine.",
            token=token,
        )
    # qsub connects before it sends anything, so after "cannot connect" nothing was sent.
    if WORDS.no_cluster.search(text):
        return Unreachable(f"PBS cannot be reached: {message(text)}.", token=token)
    if WORDS.unknown_outcome.search(text):
        return Ambiguous(f"PBS did not answer the submit: {message(text)}.", token=token)
    if _LATER.search(text):
        return Transient(f"PBS accepts no jobs now: {message(text)}.", token=token)
    if outcome.returncode <= 0 or not text.strip():
        # It succeeded without an id, or was ended by a signal: the outcome is not known.
        return Ambiguous(f"qsub ended without a job id (status {outcome.returncode}): {message(text)}.", token=token)
    return Rejected(f"PBS refuses the job: {message(text)}.", token=token)


def no_history(outcome: CommandResult) -> bool:
    """Whether the server keeps no ended jobs (PBSE_JOBHISTNOTSET)."""
    return "not configured to maintain job history" in outcome.stderr
