"""PBS's messages: why a job waits or is held, in words for its owner, and what a failed command means. Pure.

Reasons to wait are the scheduler's comments (OpenPBS src/scheduler/job_info.cpp, fctt[]); unknown ones are repeated as
they are.

`qrls` releases the owner's hold unless -h names another one, so that the letters of Hold_Types show which command is
needed, and from whom: u its owner, o an operator, s a manager (qrls(1B)). PBS itself holds with s, and says why in the
comment (OpenPBS src/server/req_jobobit.c, req_runjob.c, svr_func.c).

PBS's commands end with the error number of src/include/pbs_error.h modulo 256 (15001 -> 153 unknown job, 15010 -> 162
system error, 15139 -> 35 job in the history); the messages decide where several errors share a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Transient, Unreachable
from trainmaster.dispatchers.batch.messages import FailureWords
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.pbs.parse import PbsJob

NEVER = "Can Never Run"


@dataclass(frozen=True)
class PbsReason:
    """A reason in a sentence, and its short word. `never`: as asked, the job cannot start unless somebody changes
    something (PBS counts nodes that are down or offline among those there are)."""

    sentence: str
    word: str = ""
    never: bool = False


_AMOUNT = r"\(R: (?P<wanted>\S+) A: (?P<free>\S+) T: (?P<total>\S+)\)"
_KNOWN: tuple[tuple[str, str], ...] = (
    (rf"Insufficient amount of (?P<scope>queue |server )?resource: (?P<name>\S+) {_AMOUNT}", "amount"),
    (r"Insufficient amount of (?P<scope>queue |server )?resource: (?P<name>\S+)", "Waits for resources: {name}."),
    (r"Not enough total nodes available", "There are not enough nodes of the kind that it asks for."),
    (r"Not enough free nodes available", "Waits until enough nodes are free."),
    (r"Not enough of the right type of nodes", "Waits until enough nodes of the right kind are free."),
    (r"No available resources on nodes", "Waits for resources on the nodes."),
    (r"Queue not started", "Its queue is stopped; it starts when an administrator starts the queue."),
    (r"Queue not an execution queue", "Its queue runs no jobs itself."),
    (r"(?:Queue (?P<queue>\S+) job limit|User has reached queue|Group has reached queue|Project has reached queue)",
     "Waits because of a limit of its queue."),
    (r"(?:Server job limit|(?:User|Group|Project) has reached server)", "Waits because of a limit of the cluster."),
    (r"(?:Queue|Server) \S* ?per-(?P<whose>user|group|project)", "Waits because of a limit for its {whose}."),
    (r"would exceed (?P<whose>user|group|project|overall)\S* .*limit on resource (?P<name>\S+)",
     "Waits because of a limit on {name}."),
    (r"[Dd]edicated time", "Waits for the end of a time that is kept for other work."),
    (r"(?:non)?primetime|cross into", "Waits for the hours in which its queue runs jobs."),
    (r"top job|backfill", "Waits behind jobs of higher priority."),
    (r"strict sorted order", "Waits behind jobs of higher priority."),
    (r"reservation", "Waits because a reservation needs the nodes."),
    (r"zero shares", "Its owner has no share of this cluster."),
    (r"ineligible state", "The nodes that it needs are down, offline or busy."),
    (r"requesting an exclusive node", "Waits for a node that nobody else uses."),
    (r"Node has reached .*limit", "Waits because of a limit of the nodes."),
    (r"provision", "Waits for nodes to be set up for it."),
    (r"placement set|set .* too few", "Waits until enough nodes that belong together are free."),
    (r"under job_sort_formula threshold", "Its priority is still below the one from which jobs are started."),
    (r"Specified \S+ does not exist: (?P<name>\S+)", "It asks for {name}, which does not exist."),
)  # fmt: skip


def explain_reason(comment: str) -> PbsReason:
    """Explain the comment of a job that waits and is not held; "" gives an empty sentence."""
    text = " ".join(comment.split())
    prefix, _, rest = text.partition(": ")
    never = prefix == NEVER
    if prefix not in (NEVER, "Not Running"):
        rest = text
    # A requeued job keeps the comment of its start for a while.
    if not text or text.startswith("Job run at "):
        return PbsReason("")
    for pattern, sentence in _KNOWN:
        match = re.search(pattern, rest)
        if match:
            return PbsReason(_sentence(sentence, match, never), rest, never)
    return PbsReason(f"PBS says: {text.rstrip('.')}.", rest, never)


def _sentence(form: str, match: re.Match[str], never: bool) -> str:
    if form != "amount":
        return form.format(**{key: value or "" for key, value in match.groupdict().items()})
    wanted, total = _number(match["wanted"]), _number(match["total"])
    where = {"queue ": "its queue", "server ": "the cluster"}.get(match["scope"] or "", "what it may use")
    if never:
        return f"It asks for {wanted} of {match['name']}, and {where} has {total} in all."
    return f"Waits for resources: it needs {wanted} of {match['name']}, {_number(match['free'])} are free."


def _number(text: str) -> str:
    return text.rstrip(",;")


_PASSWORD = "p"  # noqa: S105 the letter of a hold


def explain_hold(job: PbsJob) -> str:
    """Return one or two sentences on a job that is held."""
    where = f" on {job.nodes[0]}" if job.nodes else ""
    comment = " ".join(job.comment.split())
    release = _release(job)
    if "security breach of job tmpdir" in comment:
        return (
            f"Held by PBS: where it makes the job's temporary folder{where}, pbs.{job.job_id} was there already and "
            "belongs to another account: left by an older server that gave the same number, or put there. An "
            "administrator has to remove it (from /var/tmp, unless PBS_TMPDIR in pbs.conf or $tmpdir in "
            f"mom_priv/config names another folder); {release}."
        )
    if "too many failed attempts" in comment:
        return (
            f"Held by PBS after {job.run_count} attempts to start it: an administrator finds the reason in mom_logs of "
            f"PBS's folder on the nodes; {release}."
        )
    if "provisioning" in comment.lower():
        return (
            f"Held by PBS: its nodes could not be set up (provisioning). An administrator has to fix that; {release}."
        )
    if _PASSWORD in job.holds:
        return f"Held by PBS, which needs its owner's password (pbs_password); {release}."
    if hook := re.search(r"Job held by '([^']*)' hook", comment):
        return f"Held by the site's hook {hook[1]}; {release}."
    if person := re.search(r"Job held by (\S+) on ", comment):
        return f"Held by {person[1]}; {release}."
    who = "an administrator" if set(job.holds) & set("os") else "its owner"
    suffix = f" PBS says: {comment.rstrip('.')}." if comment else ""
    return f"Held by {who}; {release}.{suffix}"


def _release(job: PbsJob) -> str:
    """Return how to release the job; every hold must be released."""
    letters = "".join(letter for letter in "uosp" if letter in job.holds)
    if letters in ("", "u"):
        return f"`qrls {job.job_id}` lets it go on"
    who = "a manager of PBS" if set(letters) & set("sp") else "an operator of PBS"
    return f"`qrls -h {letters} {job.job_id}` by {who} lets it go on"


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
