"""Decides how one attempt ended, from all that is known of it.

Three sources report on a job, in this order of trust: the runtime in it, the record it left on disk, the scheduler. The
scheduler's silence alone never ends an attempt: see `verdict`.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.master.lifecycle.cancellation import Cancellation, doubt, needs_asking
from trainmaster.master.lifecycle.causes import TOO_LITTLE_MEMORY, cause_of, final_why
from trainmaster.master.lifecycle.states import AllocationState, OutcomeKind
from trainmaster.master.values.exits import ExitRecord

SETTLE_TIME = 5.0  # seconds between the scheduler's "ended" and ours, for the runtime's own report to arrive
IMPOSSIBLE_AFTER = 300.0  # seconds for which a job that its scheduler can never start stays in the queue
FAILED = "resources failed with non-zero exit code"
PEER_WAIT = 5.0  # seconds that one node's failure waits for the exit records of the other nodes
ACCOUNTING_WAIT = 45.0  # seconds an exit by signal waits for the scheduler to report who sent it


@dataclass(frozen=True)
class Attempt:
    """All facts about an allocation that decide its end. Times are epoch seconds."""

    num_nodes: int = 1
    leased: bool = False
    held: bool = False  # it ran, was requeued by a person, and is held in the queue
    heartbeat_at: float | None = None
    exits: Mapping[int, ExitRecord] = field(default_factory=dict)
    first_exit_at: float | None = None
    reported: OutcomeKind | None = None  # the end that the scheduler reports; None before
    reported_text: str = ""
    reported_signal: int | None = None  # that ended the job's script, as the scheduler reports it
    ended_seen_at: float | None = None  # when the scheduler first reported it ended
    absent_since: float | None = None
    never_since: float | None = None  # when the scheduler first reported that it can never start
    preempt_reason: str | None = None  # it was asked to leave, by us or the runtime
    kill_asked: bool = False
    cancellation: Cancellation = field(default_factory=Cancellation)  # counts only where `reported` is CANCELLED
    runs: str = "training"  # noun for what it runs, in messages about its end: `program` for standalone tasks

    @property
    def code(self) -> str:
        return "training code" if self.runs == "training" else self.runs

    @property
    def task(self) -> str:
        return "trial" if self.runs == "training" else "task"


@dataclass(frozen=True)
class Outcome:
    kind: OutcomeKind
    text: str  # a sentence without a full stop
    exit_code: int | None = None
    final: str = ""  # why another attempt would fail in the same way: the rest of a sentence
    out_of_memory: bool = False  # of the node, or of a GPU


def signal_of(exit_code: int | None, exit_signal: int | None) -> int | None:
    """Return the signal that ended a job's script, as the scheduler reports it. A shell in between turns that of its
    child into a status above 128 (POSIX, Shell Command Language, 2.8.2)."""
    if exit_signal is None and exit_code is not None and 128 < exit_code <= 192:
        return exit_code - 128
    return exit_signal


def last_line(outcome: OutcomeKind, text: str, exit_code: int | None, *, ran: bool) -> tuple[str, str] | None:
    """Level and text of the line that ends an attempt's part of the log: that of Determined's master, which scripts
    search for. `ran`: its job came up. None for one that was withdrawn before that."""
    if outcome in (OutcomeKind.STOPPED, OutcomeKind.CANCELLED) and not ran:
        return None
    if exit_code == 0:
        text_of_end = "resources exited successfully with a zero exit code"
    elif outcome is OutcomeKind.REJECTED and not ran:
        text_of_end = f"{FAILED}: unable to launch job: {text}"
    elif exit_code is None:
        text_of_end = f"{FAILED}: {text}"
    else:
        text_of_end = f"{FAILED}: container failed with non-zero exit code: {exit_code} (exit code {exit_code})"
    if outcome in (OutcomeKind.STOPPED, OutcomeKind.CANCELLED):
        return "INFO", f"killed: {text_of_end}"
    return ("INFO", text_of_end) if exit_code == 0 else ("ERROR", f"crashed: {text_of_end}")


def later(state: AllocationState, candidate: AllocationState) -> AllocationState:
    """Return the later of two states: they only move forward, in whatever order observations arrive."""
    return candidate if candidate.rank > state.rank else state


def verdict(attempt: Attempt, now: float, lost_after: float) -> Outcome | None:
    """How the attempt ended; None while that is open. `lost_after`: seconds of silence from the runtime after which
    a job that the scheduler no longer lists is given up."""
    if attempt.held and not attempt.kill_asked and not _ended_by_itself(attempt):
        return None  # a person who holds the job wants its trial to wait
    if attempt.exits:
        return _from_records(attempt, now)
    if attempt.ended_seen_at is not None:
        return _from_scheduler(attempt, now) if settled(attempt, now) else None
    if attempt.absent_since is not None:
        return _from_silence(attempt, attempt.absent_since, now, lost_after)
    if attempt.never_since is not None and not attempt.leased and now - attempt.never_since >= IMPOSSIBLE_AFTER:
        why = attempt.reported_text.rstrip(".")
        return Outcome(OutcomeKind.REJECTED, f"The scheduler can never start the job as it was asked for: {why}")
    return None


def settled(attempt: Attempt, now: float) -> bool:
    """Whether the scheduler's word is old enough for others to have arrived: the runtime's, accounting's, files on a
    network's disk."""
    return attempt.ended_seen_at is not None and now - attempt.ended_seen_at >= SETTLE_TIME


def _from_records(attempt: Attempt, now: float) -> Outcome | None:
    records = [attempt.exits[rank] for rank in sorted(attempt.exits)]
    bad = [record for record in records if record.exit_code != 0]
    gone = attempt.ended_seen_at is not None or attempt.absent_since is not None
    if len(records) < attempt.num_nodes and not gone:
        if not bad:
            return None  # the other nodes have not finished
        if not attempt.kill_asked and now - (attempt.first_exit_at or now) < PEER_WAIT:
            return None  # the first failure may have been on one of these
    outside = not _asked_by_us(attempt) and not attempt.kill_asked
    # A job that was preempted and yet ended well left by itself: then its own record is more precise.
    conclusive = attempt.reported in _CONCLUSIVE or (attempt.reported is OutcomeKind.PREEMPTED and bool(bad))
    if outside and _asks_for_a_second_opinion(bad or records) and not conclusive:
        waited = now - (attempt.first_exit_at or now)
        if waited < ACCOUNTING_WAIT and not settled(attempt, now):
            return None
    if conclusive and _asks_for_a_second_opinion(bad or records) and not attempt.kill_asked:
        return _from_scheduler(attempt, now)
    if bad:
        return _from_failure(attempt, next((record for record in bad if record.fault), min(bad, key=_blame)))
    return _from_success(attempt, records[0])


def _ended_by_itself(attempt: Attempt) -> bool:
    records = list(attempt.exits.values())
    bad = [record for record in records if record.exit_code != 0]
    if not bad and len(records) < attempt.num_nodes:
        return False
    return not _asks_for_a_second_opinion(bad or records)


def _asked_by_us(attempt: Attempt) -> bool:
    """Whether the master preempted it. False for a signal from the scheduler, which the runtime reports as a
    preemption: its cause, a person's qdel or a job of higher priority, is known only to the scheduler."""
    return attempt.preempt_reason not in (None, "scheduler")


_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
# States of the scheduler that explain an end which the runtime sees as a signal of unknown origin.
_CONCLUSIVE = frozenset(
    {OutcomeKind.CANCELLED, OutcomeKind.WALLTIME, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.INFRASTRUCTURE}
)


def _asks_for_a_second_opinion(records: list[ExitRecord]) -> bool:
    """Whether something outside the user's code ended all nodes: the scheduler may know its cause."""
    return all(
        not r.oom and (r.signal in (9, 15) or r.exit_code in (137, 143) or r.preempted == "scheduler") for r in records
    )


def _blame(record: ExitRecord) -> tuple[bool, float, int]:
    # A node that was ended because another failed reports SIGTERM or SIGKILL; the first cause reports something else.
    # Ranks
    # that lost their partner fail as well, after it.
    ended = record.signal in (9, 15) or record.exit_code == 143
    return (ended, math.inf if record.failed_at is None else record.failed_at, record.node_rank)


def _from_success(attempt: Attempt, chief: ExitRecord) -> Outcome:
    reason = attempt.preempt_reason or chief.preempted
    if chief.acked and reason == "walltime":
        return Outcome(OutcomeKind.WALLTIME, f"The time limit was near: the {attempt.task} saved its work and left", 0)
    if chief.acked:
        return Outcome(OutcomeKind.PREEMPTED, f"The {attempt.task} saved its work and left ({reason or 'asked to'})", 0)
    return Outcome(OutcomeKind.COMPLETED, f"The {attempt.code} ended with status 0", 0)


def _from_failure(attempt: Attempt, record: ExitRecord) -> Outcome:
    where = f" on node {record.node_name}" if record.node_name else ""
    if record.failed_rank is not None:
        where = f" in rank {record.failed_rank}{where}"
    if attempt.kill_asked:
        return _ended_by_us(attempt, record.exit_code)
    if not record.began:
        # The runtime's own statuses: 70 means that the user's files or data cannot be had, which no retry fixes.
        kind = OutcomeKind.REJECTED if record.exit_code == 70 else OutcomeKind.INFRASTRUCTURE
        return Outcome(kind, f"The {attempt.runs} was not started{where}: {record.message}", record.exit_code)
    if record.fault:
        text = f"The {attempt.code} could not work{where}: {record.fault}"
        return Outcome(OutcomeKind.INFRASTRUCTURE, text, record.exit_code)
    if record.oom:
        text = f"The {attempt.code} was ended{where} because it used more memory than it was given"
        return Outcome(OutcomeKind.OUT_OF_MEMORY, text, record.exit_code, out_of_memory=True)
    if record.preempted == "scheduler" and not _asked_by_us(attempt):
        # The code did not send SIGTERM itself; it then ends with torchrun's 1 as often as with a signal.
        text = f"Something outside ended the job{where}, and the scheduler gives no reason"
        return Outcome(OutcomeKind.INFRASTRUCTURE, text, record.exit_code)
    if attempt.preempt_reason is not None and record.signal in (9, 15):
        return Outcome(
            OutcomeKind.STOPPED,
            f"It was asked to leave ({attempt.preempt_reason}) and ended without saving",
            record.exit_code,
        )
    # A shell in between turns its child's signal into a status above 128.
    by = record.signal or (record.exit_code - 128 if 128 < record.exit_code <= 192 else None)
    how = f"was ended by signal {by}{_named(by)}" if by else f"ended with exit code {record.exit_code}"
    why = f": {record.message}" if record.message else ""
    if record.evidence:
        how += _SHELLS_WORDS.get(record.exit_code, "")
        why = f"; its last lines: {record.evidence}"
    final = final_why(record.exit_code, record.evidence)
    memory = cause_of(record.exit_code, record.evidence) is TOO_LITTLE_MEMORY
    return Outcome(OutcomeKind.FAILED, f"The {attempt.code} {how}{where}{why}", record.exit_code, final, memory)


# POSIX, Shell Command Language, 2.8.2
_SHELLS_WORDS = {126: " (a program cannot be run)", 127: " (there is no such program)"}


def _named(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal has no name
        return ""


def _from_scheduler(attempt: Attempt, now: float) -> Outcome | None:
    reported = attempt.reported or OutcomeKind.INFRASTRUCTURE
    text = attempt.reported_text.rstrip(".") or f"The scheduler reports: {reported.value}"
    if attempt.kill_asked or (_asked_by_us(attempt) and reported is OutcomeKind.CANCELLED):
        return _ended_by_us(attempt)
    if reported is OutcomeKind.CANCELLED:
        return _from_cancellation(attempt, text, now)
    if reported is OutcomeKind.FAILED and not attempt.leased and attempt.reported_signal in _FROM_OUTSIDE:
        # Nothing of the user's ran yet: the runtime starts it, and had no lease.
        return Outcome(
            OutcomeKind.INFRASTRUCTURE, f"The job was ended from outside before its runtime could report: {text}"
        )
    if reported is OutcomeKind.FAILED and not attempt.leased:
        return Outcome(OutcomeKind.FAILED, f"The job ended before its runtime could report: {text}")
    if reported is OutcomeKind.FAILED:
        # The runtime outlives the user's code and always reports how that ended; so it was killed itself.
        why = f"The job was ended from outside, and its runtime could not report why: {text}"
        return Outcome(OutcomeKind.INFRASTRUCTURE, why)
    if reported is OutcomeKind.COMPLETED:
        # Status 0 without a report of the runtime: nothing shows that the training was done.
        return Outcome(
            OutcomeKind.INFRASTRUCTURE, "The scheduler reports success, but nothing in the job reported how it ended"
        )
    return Outcome(reported, text)


def _from_cancellation(attempt: Attempt, text: str, now: float) -> Outcome | None:
    waited = now - (attempt.ended_seen_at or now)
    if needs_asking(attempt.cancellation) and waited < ACCOUNTING_WAIT:
        return None
    reason = doubt(attempt.cancellation)
    if reason is None:
        return Outcome(OutcomeKind.CANCELLED, text)
    return Outcome(OutcomeKind.INFRASTRUCTURE, f"{reason}: the cluster's doing, not a person's ({text})")


def _ended_by_us(attempt: Attempt, exit_code: int | None = None) -> Outcome:
    if attempt.kill_asked and _asked_by_us(attempt):  # the kill itself reaches the job as a signal from its scheduler
        text = f"It was asked to leave ({attempt.preempt_reason}) and was ended before it did"
    else:
        text = "It was ended at once"
    return Outcome(OutcomeKind.STOPPED, text, exit_code)


def _from_silence(attempt: Attempt, absent_since: float, now: float, lost_after: float) -> Outcome | None:
    if attempt.kill_asked:
        return _ended_by_us(attempt)
    quiet_since = max(absent_since, attempt.heartbeat_at or 0.0)
    if now - quiet_since < lost_after:
        return None
    if attempt.preempt_reason is not None and not attempt.leased:
        return Outcome(OutcomeKind.STOPPED, "It was withdrawn before it started")
    return Outcome(
        OutcomeKind.INFRASTRUCTURE,
        f"The job left the scheduler's queue without a trace: no exit record, and no heartbeat for {lost_after:.0f} s",
    )
