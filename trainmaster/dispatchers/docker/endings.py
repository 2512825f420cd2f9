"""Derives from a job's record which signals its containers should get, and how the job ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.agent_protocol.messages import Blame, Delivery
from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.docker.job_record import EndKind, JobEnd, JobRecord, NodePartEnd, StopKind

SIGKILLED = 128 + 9


def deliveries(record: JobRecord, now: float, cancel_grace: float, preemption_grace: float) -> tuple[Delivery, ...]:
    """Return all signals that the job's containers should have received by now. Times are seconds."""
    due = set(record.signals)
    for stop in record.stops:
        asked_at = stop.at
        if stop.kind is StopKind.PREEMPT:
            due.add(Delivery.PREEMPT)
            asked_at += preemption_grace
        if now >= asked_at:
            due.add(Delivery.TERMINATE)
        if now >= asked_at + cancel_grace:
            due.add(Delivery.KILL)
    return tuple(delivery for delivery in Delivery if delivery in due)


def next_delivery(record: JobRecord, now: float, cancel_grace: float, preemption_grace: float) -> float | None:
    """Return when `deliveries` will next grow, in epoch seconds; None when that is not known."""
    times = []
    for stop in record.stops:
        asked_at = stop.at + (preemption_grace if stop.kind is StopKind.PREEMPT else 0.0)
        times += [asked_at, asked_at + cancel_grace]
    return min((time for time in times if time > now), default=None)


def conclude(record: JobRecord, now: float) -> JobEnd | None:
    """Return how the job ended; None while a part of it runs."""
    ends = [(number, rank.agent_id, rank.end) for number, rank in enumerate(record.ranks)]
    done = [(number, agent, end) for number, agent, end in ends if end is not None]
    if len(done) < len(ends):
        return None
    if record.stop(StopKind.CANCEL):
        return _ended(JobState.CANCELLED, "cancelled", "The job was cancelled.", now, _first(done))
    if not done:
        return None
    bad = [(number, agent, end) for number, agent, end in done if end.bad]
    if not bad:
        if preempt := record.stop(StopKind.PREEMPT):
            return _ended(JobState.PREEMPTED, "preempted", preempt.why, now, done[0][2])
        return JobEnd(state=JobState.COMPLETED, raw="ended", text="The job ended with status 0.", at=now, exit_code=0)
    # The first part that ended is the cause: the others were ended because of it.
    number, agent, end = min(bad, key=lambda one: (_is_consequence(one[2]), one[2].at, one[0]))
    where = f" on agent {agent}" if len(ends) == 1 else f" on agent {agent} (node {number})"
    if end.kind is EndKind.EXITED and not end.oom and end.blame is not Blame.HOST:
        for kind, state, raw in (
            (StopKind.PREEMPT, JobState.PREEMPTED, "preempted"),
            (StopKind.EVICT, JobState.INFRASTRUCTURE, "evicted"),
        ):
            if (stop := record.stop(kind)) and end.at >= stop.at:
                return _ended(state, raw, stop.why, now, end)
    return _from_end(end, where, now)


def _from_end(end: NodePartEnd, where: str, now: float) -> JobEnd:
    message = end.message.rstrip(".")
    match end.kind:
        case EndKind.LOST:
            text = (
                f"The agent of the job was lost{where}: {message}." if message else f"The job's agent was lost{where}."
            )
            return _ended(JobState.INFRASTRUCTURE, "agent lost", text, now)
        case EndKind.GONE:
            text = f"The job's container was removed by someone else{where}."
            return _ended(JobState.INFRASTRUCTURE, "removed", text, now)
        case EndKind.FAILED:
            state = JobState.FAILED if end.blame is Blame.JOB else JobState.INFRASTRUCTURE
            return _ended(state, "cannot start", f"The job could not be started{where}: {message}.", now)
        case _:
            return _from_exit(end, where, now)


def _from_exit(end: NodePartEnd, where: str, now: float) -> JobEnd:
    if end.oom:
        text = f"The job was ended{where} because it used more memory than its container or its host has."
        return _ended(JobState.OUT_OF_MEMORY, "out of memory", text, now, end)
    if end.blame is Blame.HOST:
        return _ended(JobState.INFRASTRUCTURE, "daemon", f"{end.message.rstrip('.')}{where}.", now, end)
    if end.exit_code == SIGKILLED:
        text = f"The job was ended by SIGKILL{where}: the host ran out of memory, or someone stopped its container."
        return _ended(JobState.FAILED, "ended", text, now, end)
    code = end.exit_code or 0
    how = f"was ended by signal {code - 128}" if 128 < code < 160 else f"ended with status {code}"
    return _ended(JobState.FAILED, "ended", f"The job {how}{where}.", now, end)


def _ended(state: JobState, raw: str, text: str, now: float, end: NodePartEnd | None = None) -> JobEnd:
    code = end.exit_code if end is not None else None
    signal = code - 128 if code is not None and 128 < code < 160 else None
    return JobEnd(state=state, raw=raw, text=text, at=now, exit_code=None if signal else code, exit_signal=signal)


def _is_consequence(end: NodePartEnd) -> bool:
    """Whether the part was ended from outside, as happens to all parts when one node fails."""
    return end.kind is EndKind.EXITED and not end.oom and end.exit_code in (SIGKILLED, 128 + 15)


def _first(done: Sequence[tuple[int, str, NodePartEnd]]) -> NodePartEnd | None:
    return done[0][2] if done else None
