"""Maps Slurm's state words, compact codes and flags (20.02 to 26.05) to job states of the master.

squeue shows a flag instead of the base state when a job has one, so that COMPLETING hides whether it failed; sacct adds
words ("CANCELLED by 1000") and truncates ("CANCELLED+"). An unknown word maps to UNKNOWN, never to an error.
"""

from __future__ import annotations

import re
from functools import lru_cache

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.slurm.cluster_ends import find
from trainmaster.dispatchers.slurm.exits import REMEMBERED, SlurmExit

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
    What the cluster did on its own account, `cluster_ends` knows.
    """
    words = state_words(raw)
    known = [_WORDS[word] for word in words if word in _WORDS]
    meaningful = [state for state in known if state is not JobState.UNKNOWN]
    if not meaningful:
        return JobState.UNKNOWN
    if own := find(words[-1], reason=reason, exit=exit, derived=derived, placed=placed):
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
