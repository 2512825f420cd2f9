"""What the controller writes down while it makes the world match the database: submissions, sightings, ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobRef, JobState, Observation, Snapshot
from trainmaster.master.db.tables import Allocation, Experiment, Stream, Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.allocation import Attempt, ExitRecord, Outcome, later, verdict
from trainmaster.master.lifecycle.states import AllocationState, OutcomeKind, Submission
from trainmaster.master.services import jobspec, logs
from trainmaster.master.services.clock import epoch, from_epoch, now
from trainmaster.master.services.clusters import Clusters, ServedPool
from trainmaster.master.services.conductor import conducting
from trainmaster.master.services.store import Settings, Store

OUTPUT_LINES = 50  # of a job that failed before its runtime came up
KEEP_FOLDER = 60.0  # seconds for which an ended job's folder stays: the job itself may still be on its way out
LEAVE_TIME = 60.0  # seconds that a job has to leave the scheduler after its attempt has ended
ORPHAN_GRACE = 300.0  # seconds for which a job of ours that no row knows is left alone
RESEND_KILL = 30.0  # seconds between two requests to end the same job


@dataclass(frozen=True)
class Ticket:
    """An allocation that is to be submitted now."""

    allocation_id: str
    token: str
    served: ServedPool
    config: Mapping[str, Any]


def adopt_cluster(store: Store, clusters: Clusters) -> None:
    """Bind new allocations to the cluster that serves their pool (once; it never changes afterwards)."""
    by_pool = {served.pool.name: served.cluster.name for served in clusters.pools()}
    with store.transaction() as session:
        query = select(Allocation).where(Allocation.dispatcher == "", Allocation.ended_at.is_(None))
        for allocation in session.scalars(query.with_for_update(skip_locked=True)):
            allocation.dispatcher = by_pool.get(allocation.pool, "")


def due(store: Store, cluster: str, limit: int) -> list[str]:
    """Allocations whose turn to be submitted has come, oldest first."""
    query = (
        select(Allocation.id)
        .where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at.is_(None),
            Allocation.submission == Submission.NEW.value,
            Allocation.kill_at.is_(None),
            Allocation.not_before <= now(),
        )
        .order_by(Allocation.created_at, Allocation.trial_id)
        .limit(limit)
    )
    with store.transaction() as session:
        return list(session.scalars(query))


def next_due(store: Store, cluster: str) -> dt.datetime | None:
    """When the next allocation that still waits out its back-off comes due."""
    query = select(Allocation.not_before).where(
        Allocation.dispatcher == cluster, Allocation.ended_at.is_(None), Allocation.submission == Submission.NEW.value
    )
    with store.transaction() as session:
        return session.scalar(query.order_by(Allocation.not_before).limit(1))


def begin_submit(store: Store, clusters: Clusters, allocation_id: str) -> Ticket | None:
    """Commit that a submit is about to happen, before it does. None when it should not happen any more."""
    with store.transaction() as session:
        allocation = session.get(Allocation, allocation_id, with_for_update=True)
        if allocation is None or allocation.ended_at or allocation.kill_at or allocation.submission != Submission.NEW:
            return None
        trial = session.get_one(Trial, allocation.trial_id)
        config = session.get_one(Experiment, trial.experiment_id).config
        served = clusters.resolve(allocation.pool, allocation.slots)
        allocation.submission = Submission.SUBMITTING.value
        allocation.submit_started_at = now()
        return Ticket(allocation.id, allocation.token, served, config)


def spec_of(store: Store, settings: Settings, ticket: Ticket) -> Any:
    with store.transaction() as session:
        allocation = session.get_one(Allocation, ticket.allocation_id)
    return jobspec.build(settings, ticket.served, allocation, ticket.config)


def submitted(store: Store, allocation_id: str, ref: JobRef) -> None:
    """The scheduler took the job."""
    with store.transaction() as session:
        allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
        if allocation.submission in (Submission.SUBMITTING, Submission.UNKNOWN):
            with _noting(session) as notes:
                _mark_submitted(notes, allocation, ref.job_id, ref.cluster)


def not_submitted(store: Store, allocation_id: str, delay: float, why: str) -> None:
    """The scheduler did not take the job for now; try again after `delay` seconds."""
    with store.transaction() as session:
        allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
        if allocation.submission == Submission.SUBMITTING:
            allocation.submission = Submission.NEW.value
            allocation.not_before = now() + dt.timedelta(seconds=delay)
            with _noting(session) as notes:
                _explain(notes, allocation, why, level="WARNING")


def perhaps_submitted(store: Store, allocation_id: str, why: str) -> None:
    """Nobody knows whether the scheduler took the job: look for its token before anything else."""
    with store.transaction() as session:
        allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
        if allocation.submission == Submission.SUBMITTING:
            allocation.submission = Submission.UNKNOWN.value
            allocation.absent_since = None
            with _noting(session) as notes:
                _explain(
                    notes, allocation, f"It is not known whether the scheduler took the job ({why}); looking for it."
                )


def rejected(store: Store, settings: Settings, allocation_id: str, why: str) -> None:
    end(
        store,
        settings,
        allocation_id,
        Outcome(OutcomeKind.REJECTED, f"The scheduler refuses the job: {why.rstrip('.')}"),
    )


def recover(store: Store, cluster: str) -> None:
    """After a start: a submit that was under way when the last master died is of unknown outcome."""
    with store.transaction() as session:
        session.execute(
            update(Allocation)
            .where(Allocation.dispatcher == cluster, Allocation.submission == Submission.SUBMITTING.value)
            .values(submission=Submission.UNKNOWN.value, absent_since=None)
        )


def live_ids(store: Store, cluster: str) -> list[str]:
    """Allocations that some scheduler may know of."""
    query = select(Allocation.id).where(
        Allocation.dispatcher == cluster, Allocation.ended_at.is_(None), Allocation.submission != Submission.NEW.value
    )
    with store.transaction() as session:
        return list(session.scalars(query.order_by(Allocation.id)))


def ref_of(store: Store, allocation_id: str) -> JobRef | None:
    """The job of an allocation as its scheduler knows it; None while that id is not known."""
    with store.transaction() as session:
        allocation = session.get(Allocation, allocation_id)
    if allocation is None or allocation.native_id is None:
        return None
    return JobRef(allocation.token, allocation.native_id, allocation.cluster)


@dataclass(frozen=True)
class Sightings:
    """What a snapshot asks the controller to do."""

    doubles: list[JobRef]  # further jobs under a token that another job already serves
    orphans: list[JobRef]  # jobs of ours that no live allocation wants
    resubmit: list[str]  # allocations whose submit has certainly not happened


def take_snapshot(store: Store, cluster: str, snapshot: Snapshot, quiet_period: float) -> Sightings:
    """Compare what the scheduler lists with what we think, and write down what was seen."""
    seen: dict[str, list[Observation]] = {}
    for observation in snapshot.jobs:
        seen.setdefault(observation.token, []).append(observation)
    found = Sightings([], [], [])
    taken = from_epoch(snapshot.taken_at)
    notes = logs.Notes()
    with store.transaction() as session:
        query = select(Allocation).where(Allocation.dispatcher == cluster, Allocation.ended_at.is_(None))
        live = {allocation.token: allocation for allocation in session.scalars(query.order_by(Allocation.id))}
        for token, allocation in live.items():
            observations = seen.get(token, [])
            mine = _choose(allocation, observations) if observations else None
            found.doubles.extend(_ref(o) for o in observations if o is not mine and not o.state.terminal)
            if allocation.submission == Submission.NEW or not _is_news(allocation, mine):
                continue  # most of thousands of jobs are as they were: no lock, no write
            session.refresh(allocation, with_for_update=True)
            if allocation.ended_at is not None:
                continue
            if mine is not None:
                _take_observation(notes, allocation, mine, taken)
            else:
                _take_absence(allocation, taken, quiet_period, found)
        strangers = [token for token in seen if token not in live]
        ended = _ended_at(session, strangers)
        for token in strangers:
            since = epoch(ended[token]) + LEAVE_TIME if token in ended else None
            found.orphans.extend(_ref(o) for o in seen[token] if _is_orphan(o, since, snapshot.taken_at))
        session.flush()
        notes.write(session)
    return found


def note_explanation(store: Store, allocation_id: str, state: JobState, text: str, exit_code: int | None) -> None:
    """What accounting says of a job that left the queue."""
    with store.transaction() as session:
        allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
        if allocation.ended_at is None and state.terminal:
            allocation.observed_state = state.value
            allocation.observed = {**(allocation.observed or {}), "text": text, "ended_seen_at": epoch(now())}
            allocation.exit_code = exit_code


def silent(store: Store, cluster: str) -> list[tuple[str, JobRef, bool]]:
    """Attempts that the scheduler calls ended, or no longer lists, while not every node has said how it ended:
    (allocation, job, whether the scheduler still lists it). What they left in their folders comes first."""
    found = []
    for allocation in _possibly_over(store, cluster):
        attempt = attempt_of(allocation)
        over = attempt.said is not None or attempt.absent_since is not None
        if over and len(attempt.exits) < attempt.num_nodes and allocation.native_id is not None:
            ref = JobRef(allocation.token, allocation.native_id, allocation.cluster)
            found.append((allocation.id, ref, attempt.said is not None))
    return found


@dataclass(frozen=True)
class Verdict:
    """`complete`: every report that the job wrote has been taken in, as far as its exit records tell. `leased`: its
    runtime came up; when it did not, what the scheduler captured of the job is all there is to read."""

    allocation_id: str
    token: str
    outcome: Outcome
    complete: bool
    leased: bool


def verdicts(store: Store, settings: Settings, cluster: str) -> list[Verdict]:
    """Attempts whose end is certain by now."""
    time = epoch(now())
    found = []
    for allocation in _possibly_over(store, cluster):
        outcome = verdict(attempt_of(allocation), time, settings.lost_after)
        if outcome is not None:
            leased = allocation.lease_job is not None
            found.append(Verdict(allocation.id, allocation.token, outcome, _complete(store, allocation), leased))
    return found


def _possibly_over(store: Store, cluster: str) -> list[Allocation]:
    """Attempts of which something says that they have ended: a few among thousands that run or wait."""
    query = select(Allocation).where(
        Allocation.dispatcher == cluster,
        Allocation.ended_at.is_(None),
        Allocation.submission != Submission.NEW.value,
        or_(
            Allocation.exits != {},
            Allocation.absent_since.is_not(None),
            Allocation.observed_state.in_([state.value for state in ENDS]),
        ),
    )
    with store.transaction() as session:
        return list(session.scalars(query.order_by(Allocation.created_at)))


def _complete(store: Store, allocation: Allocation) -> bool:
    if len(allocation.exits) < allocation.num_nodes:
        return allocation.lease_job is None  # a job that never leased has reported nothing
    written: dict[str, int] = {}
    for record in allocation.exits.values():
        written.update(record.get("spool") or {})
    with store.transaction() as session:
        query = select(Stream.stream, Stream.acked).where(Stream.allocation_id == allocation.id)
        taken = {row.stream: row.acked for row in session.execute(query)}
    return all(taken.get(stream, 0) >= lines for stream, lines in written.items())


def end(store: Store, settings: Settings, allocation_id: str, outcome: Outcome) -> None:
    """Close an attempt and let its trial and experiment go on from there, in one transaction."""
    with store.transaction() as session:
        experiment_id = session.scalar(
            select(Trial.experiment_id)
            .join(Allocation, Allocation.trial_id == Trial.id)
            .where(Allocation.id == allocation_id)
        )
    if experiment_id is None:
        return
    with conducting(store, settings, experiment_id) as conductor:
        allocation = conductor.session.get_one(Allocation, allocation_id, with_for_update=True, populate_existing=True)
        if allocation.ended_at is not None:
            return
        if outcome.exit_code is not None:
            allocation.exit_code = outcome.exit_code
        trial = conductor.session.get_one(Trial, allocation.trial_id)
        saved = trial.checkpoint_count > allocation.checkpoints_before
        conductor.allocation_ended(allocation, trials.AllocationEnded(outcome.kind, outcome.text, saved))


def quote_output(store: Store, allocation_id: str, output: str) -> None:
    """What the scheduler captured of a job whose runtime never came up, into the trial's log."""
    lines = [line for line in output.splitlines() if line.strip()][-OUTPUT_LINES:]
    with store.transaction() as session:
        allocation = session.get_one(Allocation, allocation_id)
        logs.append(
            session, allocation.task_id, allocation_id, [logs.Line(line, "ERROR", source="scheduler") for line in lines]
        )


def withdraw(store: Store, settings: Settings, cluster: str) -> None:
    """End what must end and certainly never reached a scheduler."""
    query = select(Allocation.id).where(
        Allocation.dispatcher.in_((cluster, "")),
        Allocation.ended_at.is_(None),
        Allocation.kill_at.is_not(None),
        Allocation.submission == Submission.NEW.value,
    )
    with store.transaction() as session:
        ids = list(session.scalars(query))
    for allocation_id in ids:
        end(store, settings, allocation_id, Outcome(OutcomeKind.STOPPED, "It was withdrawn before it was submitted"))


def to_kill(store: Store, cluster: str) -> list[tuple[str, JobRef | None]]:
    """Attempts that must end and have not: (allocation, its job if the scheduler's id is known)."""
    horizon = now() - dt.timedelta(seconds=RESEND_KILL)
    query = select(Allocation).where(
        Allocation.dispatcher == cluster,
        Allocation.ended_at.is_(None),
        Allocation.kill_at.is_not(None),
        Allocation.submission == Submission.SUBMITTED.value,
        Allocation.kill_sent_at.is_(None) | (Allocation.kill_sent_at < horizon),
    )
    with store.transaction() as session:
        rows = list(session.scalars(query.order_by(Allocation.id).with_for_update(skip_locked=True)))
        for row in rows:
            row.kill_sent_at = now()
            row.state = later(AllocationState(row.state), AllocationState.TERMINATING).value
    return [(row.id, JobRef(row.token, row.native_id, row.cluster) if row.native_id else None) for row in rows]


def enforce_deadlines(store: Store) -> None:
    """An attempt that was asked to leave and is still there after its time is ended."""
    with store.transaction() as session:
        query = select(Allocation).where(
            Allocation.ended_at.is_(None), Allocation.kill_at.is_(None), Allocation.preempt_deadline < now()
        )
        for allocation in session.scalars(query.order_by(Allocation.id).with_for_update(skip_locked=True)):
            allocation.kill_at = now()
            text = f"It did not leave in time ({allocation.preempt_reason}) and is ended now."
            logs.say(session, allocation.task_id, text, "WARNING", allocation.id)


def uncollected(store: Store, cluster: str, limit: int = 20) -> list[tuple[str, str]]:
    """Ended attempts whose job folder still has to be read and removed: (allocation, token)."""
    query = select(Allocation.id, Allocation.token).where(
        Allocation.dispatcher == cluster,
        Allocation.ended_at < now() - dt.timedelta(seconds=KEEP_FOLDER),
        ~Allocation.collected,
    )
    with store.transaction() as session:
        return [(row.id, row.token) for row in session.execute(query.order_by(Allocation.ended_at).limit(limit))]


def collected(store: Store, allocation_id: str) -> None:
    with store.transaction() as session:
        session.execute(update(Allocation).where(Allocation.id == allocation_id).values(collected=True))


def attempt_of(allocation: Allocation) -> Attempt:
    """The facts of a row as the pure verdict wants them."""
    seen = allocation.observed or {}
    state = JobState(allocation.observed_state) if allocation.observed_state else JobState.UNKNOWN
    received = [record["received_at"] for record in allocation.exits.values()]
    return Attempt(
        num_nodes=allocation.num_nodes,
        leased=allocation.lease_job is not None,
        heartbeat_at=epoch(allocation.heartbeat_at) if allocation.heartbeat_at else None,
        exits={int(rank): _exit_record(int(rank), record) for rank, record in allocation.exits.items()},
        first_exit_at=min(received) if received else None,
        said=ENDS.get(state),
        said_text=str(seen.get("text") or ""),
        ended_seen_at=seen.get("ended_seen_at"),
        absent_since=epoch(allocation.absent_since) if allocation.absent_since else None,
        preempt_reason=allocation.preempt_reason if allocation.preempt_at else None,
        kill_asked=allocation.kill_at is not None,
    )


ENDS = {
    JobState.COMPLETED: OutcomeKind.COMPLETED,
    JobState.FAILED: OutcomeKind.FAILED,
    JobState.CANCELLED: OutcomeKind.CANCELLED,
    JobState.WALLTIME: OutcomeKind.WALLTIME,
    JobState.OUT_OF_MEMORY: OutcomeKind.OUT_OF_MEMORY,
    JobState.PREEMPTED: OutcomeKind.INFRASTRUCTURE,
    JobState.INFRASTRUCTURE: OutcomeKind.INFRASTRUCTURE,
}

_PROGRESS = {
    JobState.QUEUED: AllocationState.ASSIGNED,
    JobState.HELD: AllocationState.ASSIGNED,
    JobState.STARTING: AllocationState.STARTING,
    JobState.RUNNING: AllocationState.STARTING,  # RUNNING for users only when the runtime has joined
}


def _exit_record(rank: int, record: Mapping[str, Any]) -> ExitRecord:
    preempted = record.get("preempted")
    return ExitRecord(
        node_rank=rank,
        exit_code=int(record.get("exit_code") or 0),
        signal=record.get("signal"),
        oom=bool(record.get("oom")),
        preempted=str(preempted.get("reason")) if isinstance(preempted, Mapping) else None,
        acked=bool(record.get("preempt_acked")),
        began=bool(record.get("began", True)),
        message=str(record.get("message") or ""),
        node_name=str(record.get("node_name") or ""),
    )


def _mark_submitted(notes: logs.Notes, allocation: Allocation, job_id: str, cluster: str) -> None:
    allocation.submission = Submission.SUBMITTED.value
    allocation.submitted_at = allocation.submitted_at or now()
    allocation.native_id = allocation.native_id or job_id
    allocation.cluster = allocation.cluster or cluster
    allocation.state = later(AllocationState(allocation.state), AllocationState.ASSIGNED).value
    text = f"Attempt {allocation.attempt} is job {job_id} in pool {allocation.pool}."
    notes.say(allocation.task_id, text, allocation_id=allocation.id)


def _choose(allocation: Allocation, observations: Sequence[Observation]) -> Observation:
    """Which of several jobs under one token counts: the leased one, else the one we know, else the oldest."""
    for wanted in (allocation.lease_job, allocation.native_id):
        for observation in observations:
            if observation.job_id == wanted:
                return observation
    return min(observations, key=lambda o: (o.submitted_at or 0.0, len(o.job_id), o.job_id))


def _take_observation(notes: logs.Notes, allocation: Allocation, seen: Observation, taken: dt.datetime) -> None:
    before = JobState(allocation.observed_state) if allocation.observed_state else JobState.UNKNOWN
    allocation.observed_at, allocation.absent_since = taken, None
    if allocation.submission in (Submission.UNKNOWN, Submission.SUBMITTING):
        _mark_submitted(notes, allocation, seen.job_id, seen.cluster)
    if seen.state is JobState.UNKNOWN or seen.state.rank < before.rank:
        return  # an unknown word, or news that is older than what we know
    record = _record_of(seen)
    if seen.state.terminal:
        record["ended_seen_at"] = (allocation.observed or {}).get("ended_seen_at") or epoch(now())
    allocation.observed_state, allocation.observed = seen.state.value, record
    if state := _PROGRESS.get(seen.state):
        allocation.state = later(AllocationState(allocation.state), state).value
    if seen.exit_code is not None and seen.state.terminal:
        allocation.exit_code = seen.exit_code
    if seen.state in (JobState.QUEUED, JobState.HELD) and seen.explanation:
        _explain(notes, allocation, seen.explanation)


def _take_absence(allocation: Allocation, taken: dt.datetime, quiet_period: float, found: Sightings) -> None:
    asked = allocation.submitted_at or allocation.submit_started_at
    if allocation.submission == Submission.SUBMITTING or (asked and taken < asked):
        return  # the snapshot may be older than the job
    if allocation.absent_since is None:
        allocation.absent_since = taken
    unseen_for = (taken - allocation.absent_since).total_seconds()
    if allocation.submission == Submission.UNKNOWN and unseen_for >= quiet_period:
        # Two good looks, further apart than the scheduler may take to answer, saw nothing: it did not happen.
        allocation.submission = Submission.NEW.value
        allocation.absent_since = None
        if allocation.kill_at is None:
            found.resubmit.append(allocation.id)


def _is_news(allocation: Allocation, seen: Observation | None) -> bool:
    """Whether a look at the scheduler tells something that the row does not say."""
    if seen is None:
        return allocation.absent_since is None or allocation.submission == Submission.UNKNOWN
    if allocation.absent_since is not None or allocation.submission != Submission.SUBMITTED:
        return True
    known = allocation.observed or {}
    return seen.state is not JobState.UNKNOWN and (
        allocation.observed_state != seen.state.value
        or any(known.get(key) != value for key, value in _record_of(seen).items())
    )


def _record_of(seen: Observation) -> dict[str, Any]:
    return {
        "raw": seen.raw_state,
        "reason": seen.reason,
        "text": seen.explanation,
        "nodes": list(seen.nodes),
        "ends_at": seen.ends_at,
        "never": seen.never,
    }


def _is_orphan(seen: Observation, wanted_until: float | None, taken: float) -> bool:
    """A job of ours that runs or waits for nobody. One whose attempt has just ended is still on its way out, and one
    that no row knows may be of a transaction that is about to commit."""
    if seen.state.terminal or seen.state is JobState.FINISHING:
        return False
    return taken > (wanted_until if wanted_until is not None else (seen.submitted_at or taken) + ORPHAN_GRACE)


def _ended_at(session: Session, tokens: Sequence[str]) -> dict[str, dt.datetime]:
    if not tokens:
        return {}
    rows = session.execute(select(Allocation.token, Allocation.ended_at).where(Allocation.token.in_(tokens)))
    return {row.token: row.ended_at for row in rows if row.ended_at is not None}


def _explain(notes: logs.Notes, allocation: Allocation, text: str, level: str = "INFO") -> None:
    """Into the trial's log, once for each change."""
    if text and text != allocation.explanation:
        allocation.explanation = text
        notes.say(allocation.task_id, text, level, allocation.id)


@contextmanager
def _noting(session: Session) -> Iterator[logs.Notes]:
    notes = logs.Notes()
    yield notes
    session.flush()
    notes.write(session)


def _ref(observation: Observation) -> JobRef:
    return JobRef(observation.token, observation.job_id, observation.cluster)
