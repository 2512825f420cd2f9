"""Maps Slurm's states and exits to job states of the master; explains how a job ended, in words for its owner. Pure.

State words, compact codes and flags are those of 20.02 to 26.05. squeue shows a flag instead of the base state when a
job has one, so that COMPLETING hides whether it failed; sacct adds words ("CANCELLED by 1000") and truncates
("CANCELLED+"). An unknown word maps to UNKNOWN, never to an error.

Slurm (22.05 to 26.05) also ends jobs on its own account. It has one word, CANCELLED, and one account, root's or
SlurmUser's, for a person's scancel and for much that it does itself; what tells them apart is in other fields: `ENDS`.
Where only the circumstances can tell (a job that was started again, a script that never began), the master decides:
`master/lifecycle/cancellation.py`.

Sources: src/slurmctld/{job_mgr,job_scheduler,agent,prep_slurmctld,read_config,acct_policy}.c, src/slurmd/slurmd/req.c,
src/slurmd/slurmstepd/req.c of the branches slurm-22.05 to slurm-26.05.
"""

from __future__ import annotations

import contextlib
import pwd
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.batch.messages import named_signal
from trainmaster.dispatchers.slurm.messages import REMEMBERED, explain_reason


@dataclass(frozen=True)
class SlurmExit:
    """How a script ended: an exit code 0..255, or the signal that ended it."""

    code: int = 0
    signal: int | None = None

    @classmethod
    def from_wait_status(cls, status: int) -> SlurmExit:
        """From the number that `squeue -O exit_code` prints: wait(2)'s status, with Slurm's own signals in it."""
        number = status & 0x7F
        return cls(code=0, signal=number) if number else cls(code=(status >> 8) & 0xFF)

    @classmethod
    @lru_cache(REMEMBERED)
    def parse(cls, text: str) -> SlurmExit | None:
        """From "code:signal" or the raw status; None when it is neither."""
        if re.fullmatch(r"\d+", text):
            return cls.from_wait_status(int(text))
        match = re.fullmatch(r"(\d+):(\d+)", text)
        if not match:
            return None
        code, number = int(match[1]), int(match[2])
        return cls(code=0, signal=number) if number else cls(code=code & 0xFF)


OOM = 125  # SIG_OOM, Slurm's own number
LAUNCH_FAILURE = 53  # slurmstepd's error in a signal's place: it could not start the script
LAUNCH_FAILED = "LAUNCH_FAILED"
BY_NOBODY = "CANCELLED_BY_NOBODY"  # accounting's CANCELLED without "by UID", which every scancel leaves
HELD_AFTER_LAUNCH = (
    "launch failed requeued held",
    "launch failure limit exceeded requeued held",
    "user env retrieval failed requeued held",
)


@dataclass(frozen=True)
class SlurmEnd:
    """One way in which Slurm ends jobs, and how it is recognised. Empty fields match anything."""

    way: str  # what happened, for readers of the table
    state: JobState  # what the master takes it for
    sentence: str  # for the job's owner; {where} is " on n1, n2" or empty
    words: tuple[str, ...]  # state words
    reasons: tuple[str, ...] = ()
    signal: int | None = None  # in the script's exit status
    derived: int | None = None  # in that of its steps
    placed: bool | None = None  # whether it has nodes
    output: str = ""  # pattern of the job's output

    def matches(
        self, word: str, reason: str, exit: SlurmExit | None, derived: SlurmExit | None, placed: bool, output: str
    ) -> bool:
        return (
            word in self.words
            and (not self.reasons or reason in self.reasons)
            and (self.signal is None or (exit is not None and exit.signal == self.signal))
            and (self.derived is None or (derived is not None and derived.signal == self.derived))
            and (self.placed is None or self.placed is placed)
            and (not self.output or re.search(self.output, output, re.MULTILINE) is not None)
        )


_MEMORY = "The job used more memory than it had asked for{where} and was ended; ask for more with --mem."
_LIMIT = "The job reached its time limit."
_PARTITION = "The job's partition was removed{where}."
_NODE = "A node of the job failed{where}."
_SCRIPT = "Slurm did not start the job's script{where}; the log of slurmd there says why."
_I = JobState.INFRASTRUCTURE
# A job that waits, in all states and flags that say so.
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")

ENDS: tuple[SlurmEnd, ...] = (
    SlurmEnd(
        *("a partition is removed, or gone after a reconfiguration, and the job ran in it", _I, _PARTITION),
        words=("NODE_FAIL",),
        reasons=("PartitionDown",),
    ),
    SlurmEnd(
        *("a partition is removed, and the job waited for it", _I, _PARTITION),
        words=("CANCELLED",),
        signal=1,  # the number 1 stands where wait(2)'s status does
        placed=False,
    ),
    SlurmEnd(
        *("a node fails, is set down, or lost its GPUs in a reconfiguration", _I, _NODE),
        words=("NODE_FAIL",),
        reasons=("NodeDown",),
    ),
    SlurmEnd(
        "slurmd was restarted and no longer has the job (Batch JobId missing from batch node)",
        *(_I, "Slurm lost the job{where}: its script no longer ran there."),
        words=("NODE_FAIL",),
        signal=1,
    ),
    SlurmEnd("a node does not answer, for another reason", _I, _NODE, words=("NODE_FAIL",)),
    SlurmEnd(
        "a node is lost while the job is being ended",
        *(_I, _NODE),
        words=("CANCELLED", "FAILED"),
        output=r"^slurmstepd\S*: error: \*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO NODE FAILURE",
    ),
    SlurmEnd(
        *("a node does not boot or resume", _I, "A node of the job did not start{where}."),
        words=("BOOT_FAIL", "RECONFIG_FAIL"),
    ),
    SlurmEnd(
        "a prolog fails on a further node, and the job may not be requeued",
        *(_I, "The site's prolog failed{where}."),
        words=("CANCELLED", "FAILED"),
        output=r"Prolog failure on node \S+",
    ),
    SlurmEnd(
        "a launch is refused, the prolog fails, or the user's profile cannot be read, and the job is requeued and held",
        *(_I, "Slurm could not start the job, put it back into its queue and holds it there."),
        words=_WAITING,
        reasons=HELD_AFTER_LAUNCH,
    ),
    SlurmEnd(
        "the script's output cannot be opened, its folder is missing, its user is unknown",
        _I,
        "Slurm could not start the job's script{where}: the job folder or its output file cannot be written there, or "
        "the user does not exist on that node.",
        words=("FAILED",),
        signal=LAUNCH_FAILURE,
    ),
    SlurmEnd(
        "slurmd refuses the launch (Killing non-startable batch job), or a SPANK plugin fails",
        *(_I, _SCRIPT),
        words=(LAUNCH_FAILED,),
    ),
    SlurmEnd(
        "the user's profile cannot be read (--get-user-env)",
        *(_I, "Slurm could not read the environment of the job's user{where}."),
        words=("GETENV_FAILED",),
    ),
    SlurmEnd(
        "the state folder lost the job's script (Script for JobId lost), or slurmctld failed itself",
        *(_I, "Slurm lost the job's script or its own record of it."),
        words=("FAILED",),
        reasons=("SystemFailure",),
    ),
    SlurmEnd(
        "a cold start of slurmctld forgets what ran, and slurmdbd closes the record; any other end without a request",
        *(_I, "Slurm ended the job, and nobody had asked for that."),
        words=(BY_NOBODY,),
    ),
    SlurmEnd(
        "a dependency can never be satisfied (kill_invalid_depend)",
        *(_I, "Slurm removed the job because what it waited for can no longer happen."),
        words=("CANCELLED",),
        reasons=("DependencyNeverSatisfied",),
    ),
    SlurmEnd("memory runs out", JobState.OUT_OF_MEMORY, _MEMORY, words=("OUT_OF_MEMORY",)),
    SlurmEnd(*("memory runs out in the script", JobState.OUT_OF_MEMORY, _MEMORY), words=("FAILED",), signal=OOM),
    SlurmEnd(*("memory runs out in a step", JobState.OUT_OF_MEMORY, _MEMORY), words=("FAILED",), derived=OOM),
    SlurmEnd(
        # When srun ends other tasks because one ran out of memory, the job's status is the highest of all tasks, and
        # only the output still shows the cause.
        "memory runs out in one of several tasks",
        *(JobState.OUT_OF_MEMORY, _MEMORY),
        words=("FAILED",),
        output=r"^(slurmstepd\S*: error: Detected \d+ oom[-_ ]kill event|srun: error: .*: Out Of Memory\s*$)",
    ),
    SlurmEnd(
        *(
            "the deadline passes before the job can end",
            JobState.WALLTIME,
            "The job's deadline has passed (--deadline).",
        ),
        words=("DEADLINE",),
    ),
    SlurmEnd(
        "the time limit, the end of a reservation, or a limit of minutes of an account or QOS is reached",
        *(JobState.WALLTIME, _LIMIT),
        words=("TIMEOUT",),
    ),
    SlurmEnd(
        "a job of higher priority takes the resources (cancel, or requeue where that is refused)",
        *(JobState.PREEMPTED, "Slurm took the job's resources for a job of higher priority."),
        words=("PREEMPTED",),
    ),
)
"""Tried in this order; the first that matches counts."""


def find_end(
    word: str,
    *,
    reason: str = "",
    exit: SlurmExit | None = None,
    derived: SlurmExit | None = None,
    placed: bool = True,
    output: str = "",
) -> SlurmEnd | None:
    """Return the way in which Slurm itself ended the job; None when it did not, or what it shows leaves that open.

    `word`: the state in its long form; `reason`: as squeue prints it, or scontrol, which writes underscores."""
    facts = (word, reason.replace("_", " "), exit, derived, placed, output)
    return next((row for row in ENDS if row.matches(*facts)), None)


# src/common/slurm_protocol_defs.c job_state_string() and job_state_string_compact()
_BASE = {
    "PENDING": ("PD", JobState.QUEUED),
    "RUNNING": ("R", JobState.RUNNING),
    "SUSPENDED": ("S", JobState.SUSPENDED),
    "COMPLETED": ("CD", JobState.COMPLETED),
    "CANCELLED": ("CA", JobState.CANCELLED),
    "FAILED": ("F", JobState.FAILED),
    "TIMEOUT": ("TO", JobState.WALLTIME),
    "NODE_FAIL": ("NF", JobState.INFRASTRUCTURE),
    "PREEMPTED": ("PR", JobState.PREEMPTED),
    "BOOT_FAIL": ("BF", JobState.INFRASTRUCTURE),
    "DEADLINE": ("DL", JobState.WALLTIME),
    "OUT_OF_MEMORY": ("OOM", JobState.OUT_OF_MEMORY),
}
_FLAGS = {
    "CONFIGURING": ("CF", JobState.STARTING),
    "POWER_UP_NODE": ("PU", JobState.STARTING),
    "COMPLETING": ("CG", JobState.FINISHING),
    "STAGE_OUT": ("SO", JobState.FINISHING),
    "SIGNALING": ("SI", JobState.RUNNING),
    "RESIZING": ("RS", JobState.RUNNING),
    "STOPPED": ("ST", JobState.SUSPENDED),
    "REQUEUED": ("RQ", JobState.QUEUED),
    "REQUEUE_FED": ("RF", JobState.QUEUED),
    "EXPEDITING": ("EX", JobState.QUEUED),
    "REQUEUE_HOLD": ("RH", JobState.HELD),
    "SPECIAL_EXIT": ("SE", JobState.HELD),
    "RESV_DEL_HOLD": ("RD", JobState.HELD),
    "LAUNCH_FAILED": ("LF", JobState.INFRASTRUCTURE),
    "RECONFIG_FAIL": ("RC", JobState.INFRASTRUCTURE),
    "GETENV_FAILED": ("GE", JobState.INFRASTRUCTURE),
    # The job runs on a sibling cluster of the federation, which cannot be observed from here.
    "REVOKED": ("RV", JobState.UNKNOWN),
    # A bookkeeping flag beside the real state.
    "UPDATE_DB": ("UD", JobState.UNKNOWN),
}
_WORDS = {
    **{word: state for table in (_BASE, _FLAGS) for word, (_, state) in table.items()},
    **{code: state for table in (_BASE, _FLAGS) for _, (code, state) in table.items()},
}
_LONG = {code: word for table in (_BASE, _FLAGS) for word, (code, _) in table.items()}
REQUEUED_HELD = "job requeued in held state"  # a description, not one of Slurm's reason words
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", REQUEUED_HELD})


@lru_cache(REMEMBERED)
def map_state(
    raw: str,
    *,
    reason: str = "",
    exit: SlurmExit | None = None,
    derived: SlurmExit | None = None,
    placed: bool = True,
) -> JobState:
    """Return the state for Slurm's word.

    `exit` is the script's, `derived` the highest of its steps' (a script that only runs srun ends with srun's
    status, and the memory kill shows in the step's). `placed`: the job has nodes.
    `ENDS` has what the cluster did on its own account.
    """
    words = state_words(raw)
    known = [_WORDS[word] for word in words if word in _WORDS]
    meaningful = [state for state in known if state is not JobState.UNKNOWN]
    if not meaningful:
        return JobState.UNKNOWN
    if own := find_end(words[-1], reason=reason, exit=exit, derived=derived, placed=placed):
        return own.state
    state = meaningful[-1]
    if state is JobState.QUEUED and reason in HELD_REASONS:
        return JobState.HELD
    return state


def state_words(raw: str) -> list[str]:
    """Split Slurm's word into states and flags, in long form: "RUNNING,COMPLETING". "CANCELLED by 1000" is one word."""
    words = [word for word in re.split(r"[\s,|+]+", raw.strip().upper()) if word]
    if len(words) > 1 and words[1] == "BY":
        words = words[:1]
    return [_LONG.get(word, word) for word in words]


def describe_end(
    state: JobState,
    raw: str,
    *,
    reason: str = "",
    exit: SlurmExit | None = None,
    derived: SlurmExit | None = None,
    nodes: Sequence[str] = (),
    output: str = "",
) -> str:
    """Return a sentence on a job in `state`; `raw` is Slurm's word, which from accounting names who cancelled it."""
    where = f" on {', '.join(nodes)}" if nodes else ""
    word = (state_words(raw) or [""])[-1]
    own = find_end(word, reason=reason, exit=exit, derived=derived, placed=bool(nodes), output=output)
    if own is not None and own.state is state:
        return own.sentence.format(where=where)
    match state:
        case JobState.QUEUED | JobState.HELD:
            return explain_reason(reason).sentence
        case JobState.CANCELLED:
            return f"The job was cancelled by {_who(raw)}." if _who(raw) else "The job was cancelled (scancel)."
        case JobState.INFRASTRUCTURE:
            return f"Slurm could not run the job{where} ({raw})."
        case JobState.COMPLETED:
            return "The job ended with status 0."
        case JobState.FAILED if reason == "BadConstraints" and not nodes:
            return f"Slurm refused the job. {explain_reason(reason).sentence}"
        case JobState.FAILED if exit is not None and exit.signal:
            return f"The job was ended by {named_signal(exit.signal)}{where}."
        case JobState.FAILED if exit is not None:
            return f"The job ended with status {exit.code}{where}."
        case JobState.FAILED:
            return f"The job failed{where}. {explain_reason(reason).sentence}".strip()
        case _:
            return ""


def canceller(raw: str, own_accounts: Collection[int]) -> Canceller:
    """Who cancelled a job. `raw`: accounting's word, "CANCELLED by 1000"; `own_accounts`: uids under which Slurm's
    daemons act, and root's. Nobody is named by the controller."""
    uid = _uid(raw)
    return Canceller.UNKNOWN if uid is None or uid in own_accounts else Canceller.PERSON


def _uid(raw: str) -> int | None:
    match = re.search(r"by (\d+)", raw)
    return int(match[1]) if match else None


def _who(raw: str) -> str:
    uid = _uid(raw)
    if uid is None:
        return ""
    with contextlib.suppress(KeyError):
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    return f"uid {uid}"
