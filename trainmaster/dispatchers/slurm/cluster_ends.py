"""The ways in which Slurm (22.05 to 26.05) ends jobs on its own account, and what it shows of each. Pure.

Slurm has one word, CANCELLED, and one account, root's or SlurmUser's, for a person's scancel and for much that it does
itself. What tells them apart is in other fields. The rows are tried in their order; what none of them covers is what
its word says. Where only the circumstances can tell (a job that was started again, a script that never began), the
master decides: `master/lifecycle/cancellation.py`.

Sources: src/slurmctld/{job_mgr,job_scheduler,agent,prep_slurmctld,read_config,acct_policy}.c, src/slurmd/slurmd/req.c,
src/slurmd/slurmstepd/req.c of the branches slurm-22.05 to slurm-26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.slurm.exits import SlurmExit

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


def find(
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
