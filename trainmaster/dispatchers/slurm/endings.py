"""Explains how a Slurm job ended, in words for its owner. Pure."""

from __future__ import annotations

import contextlib
import pwd
import re
from collections.abc import Sequence

from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.batch.endings import named_signal
from trainmaster.dispatchers.slurm.reasons import explain_reason
from trainmaster.dispatchers.slurm.states import SlurmExit


def in_words(
    state: JobState, raw: str, *, reason: str = "", exit: SlurmExit | None = None, nodes: Sequence[str] = ()
) -> str:
    """Return a sentence on a job in `state`; `raw` is Slurm's word, which from accounting names who cancelled it."""
    where = f" on {', '.join(nodes)}" if nodes else ""
    match state:
        case JobState.QUEUED | JobState.HELD:
            return explain_reason(reason).sentence
        case JobState.CANCELLED:
            return f"The job was cancelled by {_who(raw)}." if _who(raw) else "The job was cancelled (scancel)."
        case JobState.OUT_OF_MEMORY:
            return f"The job used more memory than it had asked for{where} and was ended; ask for more with --mem."
        case JobState.WALLTIME:
            return "The job reached its time limit."
        case JobState.PREEMPTED:
            return "Slurm took the job's resources for a job of higher priority."
        case JobState.INFRASTRUCTURE:
            return _infrastructure(raw, exit, where)
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


def memory_ran_out(output: str) -> bool:
    """Whether Slurm's own messages in a job's output report it. When srun ends other tasks because one ran out of
    memory, the job's status is the highest of all tasks, and only the output still shows the cause."""
    return _OUT_OF_MEMORY.search(output) is not None


_OUT_OF_MEMORY = re.compile(
    r"^(slurmstepd\S*: error: Detected \d+ oom[-_ ]kill event|srun: error: .*: Out Of Memory\s*$)", re.MULTILINE
)


def _infrastructure(raw: str, exit: SlurmExit | None, where: str) -> str:
    if raw.upper().startswith(("NODE_FAIL", "NF")):
        return f"A node of the job failed{where}."
    if raw.upper().startswith(("BOOT_FAIL", "BF")):
        return f"A node of the job did not start{where}."
    if raw.upper().startswith(("LAUNCH_FAILED", "LF")):
        return f"Slurm did not start the job's script{where}; the log of slurmd there says why."
    if exit is not None and exit.signal == 53:
        return (
            f"Slurm could not start the job's script{where}: the job folder or its output file cannot be written "
            "there, or the user does not exist on that node."
        )
    return f"Slurm could not run the job{where} ({raw})."


def _who(raw: str) -> str:
    found = re.search(r"by (\d+)", raw)
    if not found:
        return ""
    uid = int(found[1])
    with contextlib.suppress(KeyError):
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    return f"uid {uid}"
