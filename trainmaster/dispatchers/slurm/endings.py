"""Explains how a Slurm job ended, in words for its owner. Pure."""

from __future__ import annotations

import contextlib
import pwd
import re
from collections.abc import Collection, Sequence

from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.batch.endings import named_signal
from trainmaster.dispatchers.slurm.cluster_ends import find
from trainmaster.dispatchers.slurm.exits import SlurmExit
from trainmaster.dispatchers.slurm.reasons import explain_reason
from trainmaster.dispatchers.slurm.states import state_words


def in_words(
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
    own = find(word, reason=reason, exit=exit, derived=derived, placed=bool(nodes), output=output)
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
    found = re.search(r"by (\d+)", raw)
    return int(found[1]) if found else None


def _who(raw: str) -> str:
    uid = _uid(raw)
    if uid is None:
        return ""
    with contextlib.suppress(KeyError):
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    return f"uid {uid}"
