"""Explains why a PBS job waits, from the scheduler's comment, in words for its owner (OpenPBS
src/scheduler/job_info.cpp, fctt[]).

Unknown comments are repeated as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
        found = re.search(pattern, rest)
        if found:
            return PbsReason(_sentence(sentence, found, never), rest, never)
    return PbsReason(f"PBS says: {text.rstrip('.')}.", rest, never)


def _sentence(form: str, found: re.Match[str], never: bool) -> str:
    if form != "amount":
        return form.format(**{key: value or "" for key, value in found.groupdict().items()})
    wanted, total = _number(found["wanted"]), _number(found["total"])
    where = {"queue ": "its queue", "server ": "the cluster"}.get(found["scope"] or "", "what it may use")
    if never:
        return f"It asks for {wanted} of {found['name']}, and {where} has {total} in all."
    return f"Waits for resources: it needs {wanted} of {found['name']}, {_number(found['free'])} are free."


def _number(text: str) -> str:
    return text.rstrip(",;")
