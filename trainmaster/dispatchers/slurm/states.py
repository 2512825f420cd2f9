"""Maps Slurm's state words, compact codes and flags (20.02 to 26.05) to job states of the master.

squeue shows a flag instead of the base state when a job has one, so that COMPLETING hides whether it failed; sacct adds
words ("CANCELLED by 1000") and truncates ("CANCELLED+"). An unknown word maps to UNKNOWN, never to an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from trainmaster.dispatchers.base import JobState

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
LAUNCH_FAILURE_SIGNAL = 53  # exit "0:53": slurmstepd could not start the script (ESLURMD_* in a signal's place)
OUT_OF_MEMORY_SIGNAL = 125  # exit "0:125": SIG_OOM, Slurm's own number
REMEMBERED = 4096  # cached results: of thousands of jobs in a listing, most have the same text
REQUEUED_HELD = "job requeued in held state"  # a description, not one of Slurm's reason words
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", REQUEUED_HELD})


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
        found = re.fullmatch(r"(\d+):(\d+)", text)
        if not found:
            return None
        code, number = int(found[1]), int(found[2])
        return cls(code=0, signal=number) if number else cls(code=code & 0xFF)


@lru_cache(REMEMBERED)
def map_state(
    raw: str, *, reason: str = "", exit: SlurmExit | None = None, derived: SlurmExit | None = None
) -> JobState:
    """Return the state for Slurm's word.

    `exit` is the script's, `derived` the highest of its steps' (a script that only runs srun ends with srun's
    status, and the memory kill shows in the step's).
    """
    words = [word for word in re.split(r"[\s,|+]+", raw.strip().upper()) if word]
    # "CANCELLED by 1000": only the first word is a state; "RUNNING,COMPLETING": the flags follow the base.
    if len(words) > 1 and words[1] == "BY":
        words = words[:1]
    known = [_WORDS[word] for word in words if word in _WORDS]
    if not known:
        return JobState.UNKNOWN
    meaningful = [state for state in known if state is not JobState.UNKNOWN]
    if not meaningful:
        return JobState.UNKNOWN
    state = meaningful[-1]
    if state is JobState.QUEUED and reason in HELD_REASONS:
        return JobState.HELD
    if state is JobState.FAILED:
        if exit is not None and exit.signal == LAUNCH_FAILURE_SIGNAL:
            return JobState.INFRASTRUCTURE
        if any(one is not None and one.signal == OUT_OF_MEMORY_SIGNAL for one in (exit, derived)):
            return JobState.OUT_OF_MEMORY
    return state
