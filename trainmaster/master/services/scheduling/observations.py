"""Compares observations of a scheduler with the database's state, and writes the differences down."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Text, any_, cast, literal, literal_column, select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import JobRef, JobState, Observation, Snapshot
from trainmaster.master.db.tables import Allocation, User
from trainmaster.master.lifecycle.allocation import later, signal_of
from trainmaster.master.lifecycle.states import AllocationState, SubmissionState
from trainmaster.master.services.clock import epoch, from_epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.scheduling.submission import explain, mark_submitted
from trainmaster.master.services.store import wake
from trainmaster.master.values.observed import ObservedJob

log = logging.getLogger(__name__)

LEAVE_TIME = 60.0  # seconds that a job has to leave the scheduler after its attempt has ended
TAKEN_AT_ONCE = 200  # attempts whose changes are stored in one transaction: each also locks a log
MOST_FORGERIES = 1000  # forgeries that are remembered, so that each is logged once
HELD_BACK = "The trial waits with it, and continues in another attempt when the job is released."
REQUEUED = "The scheduler ended the job and put it back into its queue."
ESTIMATE_STEP = 60.0  # seconds
ORPHAN_GRACE = 300.0  # seconds for which a job of ours without a row is left alone


@dataclass
class Memory:
    """Memory of a cluster between two observations. Only the time that an observation takes depends on it, and that
    each forgery is logged once.

    `looked_at`: when the cluster was observed last.
    `settled`: attempts (by token) that the last observation did not change, with the row's version and what was seen
    then. `forgeries`: tokens, each with the job that bears it.
    """

    name: str
    looked_at: float = 0.0
    settled: dict[str, tuple[str, Observation]] = field(default_factory=dict)
    forgeries: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True)
class ObservedChanges:
    """What a snapshot asks the controller to do."""

    doubles: list[JobRef]  # further jobs under a token that another job already serves
    orphans: list[JobRef]  # jobs of ours without a live allocation
    backlog: PendingUpdates


@dataclass
class PendingUpdates:
    """Changes in an observation that are not stored yet, the most urgent first: when thousands of jobs change at once,
    a pass of the controller would take seconds over them while others wait to be submitted or ended."""

    taken: dt.datetime  # when the cluster was observed
    quiet_period: float  # seconds
    waiting: str  # the beginning of sentences about jobs in the queue
    updates: list[tuple[str, Observation | None]]  # by allocation; None: its job is not listed
    controller_started_at: float | None = None  # by the scheduler's clock, where the observation says it
    alive_at: Mapping[str, float] = field(default_factory=dict)  # by allocation: when the observation before showed it


class Observations(BoundService):
    """Observations of schedulers, compared with the database."""

    def any_live(self, cluster: str) -> bool:
        """Whether any scheduler may hold a job of ours."""
        query = select(Allocation.id).where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at.is_(None),
            Allocation.submission != SubmissionState.NEW.value,
        )
        with self._store.autocommit() as session:
            return session.scalar(query.limit(1)) is not None

    def take_snapshot(
        self, memory: Memory, snapshot: Snapshot, quiet_period: float, waiting: str = ""
    ) -> ObservedChanges:
        """Compare the scheduler's list with the database. Stores nothing yet: `take` does. `waiting`:
        the beginning of sentences about jobs in the queue."""
        by_name: dict[str, list[Observation]] = {}
        for observation in snapshot.jobs:
            by_name.setdefault(observation.token, []).append(observation)
        alive_at: dict[str, float] = {}
        backlog = PendingUpdates(
            *(from_epoch(snapshot.taken_at), quiet_period, waiting, []),
            controller_started_at=snapshot.controller_started_at,
            alive_at=alive_at,
        )
        changes = ObservedChanges([], [], backlog)
        updates: list[tuple[bool, str, Observation | None]] = []
        doubles: dict[str, list[Observation]] = {}
        with self._store.autocommit() as session:
            alive = Allocation.dispatcher == memory.name, Allocation.ended_at.is_(None)
            live = {
                token: version for token, version in session.execute(select(Allocation.token, _VERSION).where(*alive))
            }
            settled = memory.settled
            still = {
                token: settled[token]
                for token, version in live.items()
                if len(listed := by_name.get(token, [])) == 1 and settled.get(token) == (version, listed[0])
            }  # most of thousands of jobs: they need no further check
            memory.settled = still
            changed = literal([token for token in live if token not in still], ARRAY(Text))
            query = select(*_LIVE).where(*alive, Allocation.token == any_(changed))
            for known in map(_Live._make, session.execute(query) if len(still) < len(live) else ()):
                listed = by_name.get(known.token, [])
                observations = [o for o in listed if not _is_forged(memory, o, known.run_as)]
                own = _choose(known, observations) if observations else None
                if others := [o for o in observations if o is not own and not o.state.terminal]:
                    doubles[known.id] = others
                if not _is_asked_for(known, own):
                    continue
                if _is_news(known, own, snapshot.taken_at):
                    only_why = own is not None and known.observed_state == own.state.value
                    if own is not None and known.token in settled:
                        alive_at[known.id] = memory.looked_at
                    updates.append((only_why, known.id, own))
                elif own is not None and len(listed) == 1:
                    still[known.token] = known.version, own
            strangers = [token for token in by_name if token not in live]
            ended = _ended(session, strangers)
            accounts = _linked(session) if any(o.user for token in strangers for o in by_name[token]) else frozenset()
            for token in strangers:
                since = epoch(ended[token].at) + LEAVE_TIME if token in ended else None
                for o in by_name[token]:
                    # A job without a row can be one of ours only if its account is one that we run jobs as.
                    run_as = ended[token].run_as if token in ended else o.user if o.user in accounts else None
                    if not _is_forged(memory, o, run_as) and _is_orphan(o, since, snapshot.taken_at):
                        changes.orphans.append(_ref(o))
        for allocation_id, others in doubles.items():
            changes.doubles.extend(self._condemned(allocation_id, others))
        memory.looked_at = snapshot.taken_at
        changes.backlog.updates = [(name, own) for _, name, own in sorted(updates, key=itemgetter(0, 1))]
        return changes

    def take(self, backlog: PendingUpdates) -> list[str]:
        """Store the first of the updates. Return the allocations whose submit has certainly not happened."""
        first, backlog.updates = dict(backlog.updates[:TAKEN_AT_ONCE]), backlog.updates[TAKEN_AT_ONCE:]
        return self._take_updates(first, backlog) if first else []

    def _take_updates(self, updates: Mapping[str, Observation | None], pending: PendingUpdates) -> list[str]:
        notes = log_store.Notes()
        resubmit = []
        with self._store.transaction() as session:
            query = select(Allocation).where(Allocation.id.in_(updates), Allocation.ended_at.is_(None))
            for allocation in session.scalars(query.order_by(Allocation.id).with_for_update()):
                if (observation := updates[allocation.id]) is not None:
                    _take_observation(notes, allocation, observation, pending)
                    _ask_to_leave(session, notes, allocation, observation)
                elif _take_absence(allocation, pending.taken, pending.quiet_period):
                    resubmit.append(allocation.id)
            session.flush()
            notes.write(session)
        return resubmit

    def _condemned(self, allocation_id: str, others: Sequence[Observation]) -> Iterator[JobRef]:
        """Which further jobs under a token are removed: none that has taken the lease since the observation. None of
        the others gets it from now on, so that a job which begins while it is being removed is not the one that
        works."""
        with self._store.transaction() as session:
            row = session.get(Allocation, allocation_id, with_for_update=True)
            if row is not None and row.lease_job is None:
                known = row.observed or ObservedJob()
                row.observed = known.updated(doubles=tuple(sorted({*known.doubles, *(o.job_id for o in others)})))
            worker = row.lease_job if row is not None else None
        return (_ref(o) for o in others if o.job_id != worker)


class _Live(NamedTuple):
    """The columns of a live attempt that an observation is compared with: few, because there may be thousands."""

    id: str
    token: str
    submission: str
    native_id: str | None
    run_as: str | None
    lease_job: str | None
    absent_since: dt.datetime | None
    observed_state: str
    observed_text: str | None  # JSON, which is the same for most of them
    version: str

    @property
    def observed(self) -> ObservedJob:
        return _read(self.observed_text or "{}")


@lru_cache(1000)
def _read(text: str) -> ObservedJob:
    return ObservedJob.from_json(json.loads(text) or {})


_VERSION = cast(literal_column("allocations.xmin"), Text)  # PostgreSQL's: the transaction that wrote the row
_LIVE = (
    Allocation.id,
    Allocation.token,
    Allocation.submission,
    Allocation.native_id,
    Allocation.run_as,
    Allocation.lease_job,
    Allocation.absent_since,
    Allocation.observed_state,
    cast(Allocation.observed, Text),
    _VERSION,
)


def _is_forged(memory: Memory, observation: Observation, run_as: str | None) -> bool:
    """Whether a job under one of our tokens is not of the account that its attempt runs as: another user made it, so it
    is ignored, and not ours to end. (An unnamed owner is the master's own account.)"""
    if observation.user is None or observation.user == run_as:
        return False
    if (observation.token, observation.job_id) not in memory.forgeries and len(memory.forgeries) < MOST_FORGERIES:
        memory.forgeries.add((observation.token, observation.job_id))
        log.warning(
            "job %s bears the token %s, and is of %s instead of %s: it is ignored",
            observation.job_id,
            observation.token,
            observation.user,
            run_as or "the master's account",
        )
    return True


def _choose(known: _Live, observations: Sequence[Observation]) -> Observation:
    """Choose the valid one of several jobs under one token: the leased one, else the known one, else the oldest."""
    for wanted in (known.lease_job, known.native_id):
        for observation in observations:
            if observation.job_id == wanted:
                return observation
    return min(observations, key=lambda o: (o.submitted_at or 0.0, len(o.job_id), o.job_id))


def _is_asked_for(known: _Live, observation: Observation | None) -> bool:
    """Whether an observation applies to the row: one that waits for its submit has a job only if an earlier submit,
    which was considered failed, did happen after all. That job is taken then, and no other is made. (A refused one is
    listed as ended.)"""
    return known.submission != SubmissionState.NEW or (observation is not None and not observation.state.terminal)


def _is_news(known: _Live, observation: Observation | None, taken_at: float) -> bool:
    """Whether an observation differs from the row."""
    if observation is None:
        return known.absent_since is None or known.submission == SubmissionState.UNKNOWN
    if known.absent_since is not None or known.submission != SubmissionState.SUBMITTED:
        return True
    if observation.state is JobState.UNKNOWN or (observation.state.terminal and _state(known).terminal):
        return False
    before = known.observed
    return (
        known.observed_state != observation.state.value
        or before.updated(**_record_of(observation)) != before
        or _is_other_estimate(before.expected_start, observation.expected_start, taken_at)
    )


def _is_other_estimate(before: float | None, now: float | None, taken_at: float) -> bool:
    """Whether an expected start has changed by more than a minute and a tenth of the wait that is left: schedulers
    revise those of all waiting jobs by seconds, and each change is a row to write."""
    if before is None or now is None:
        return before is not now
    return abs(now - before) > max(ESTIMATE_STEP, (before - taken_at) / 10)


def _state(row: _Live | Allocation) -> JobState:
    return JobState(row.observed_state) if row.observed_state else JobState.UNKNOWN


def _record_of(observation: Observation) -> dict[str, Any]:
    return {
        "raw": observation.raw_state,
        "reason": observation.reason,
        "text": observation.explanation,
        "nodes": tuple(observation.nodes),
        "ends_at": observation.ends_at,
        "never": observation.never,
        "taken_back_at": observation.taken_back_at,
        "restarts": observation.restarts,
    }


def _estimates(observation: Observation, before: ObservedJob) -> dict[str, Any]:
    """When a waiting job is expected to start, and the first such estimate: what became of it says how good the
    scheduler's estimates are."""
    first = observation.expected_start if before.estimated is None else before.estimated
    return {"expected_start": observation.expected_start, "estimated": first}


def _about_the_end(observation: Observation, before: ObservedJob, alive_at: float | None) -> dict[str, Any]:
    """Return what `cancellation.doubt` weighs. Only of ended jobs: the records of thousands of waiting ones are alike,
    and parsed once. A job that is being ended is no longer alive."""
    last = before.alive_at or alive_at
    if observation.state is JobState.FAILED:
        return {"signal": signal_of(observation.exit_code, observation.exit_signal)}
    if observation.state is not JobState.CANCELLED:
        return {"alive_at": last} if observation.state is JobState.FINISHING else {}
    times = {"started_at": observation.started_at, "submitted_at": observation.submitted_at}
    return {"alive_at": last, "canceller": observation.canceller.value, **times}


def _take_observation(
    notes: log_store.Notes, allocation: Allocation, observation: Observation, pending: PendingUpdates
) -> None:
    before, observed_at = _state(allocation), allocation.observed_at
    allocation.observed_at, allocation.absent_since = pending.taken, None
    if allocation.submission != SubmissionState.SUBMITTED:
        mark_submitted(notes, allocation, observation.job_id, observation.cluster)
    if before.terminal and observation.state.terminal:
        return  # its end is known, perhaps from a better source: accounting, or the job's files
    requeued = _is_requeued(allocation, observation) and not before.terminal
    held = requeued and observation.state is JobState.HELD
    if requeued and not held:
        observation = replace(observation, state=JobState.PREEMPTED, explanation=REQUEUED)
    if observation.state is JobState.UNKNOWN or (observation.state.rank < before.rank and not held):
        return  # an unknown state, or an observation that is older than the row
    known = allocation.observed or ObservedJob()
    alive_at = pending.alive_at.get(allocation.id) or (epoch(observed_at) if observed_at else None)
    allocation.observed = ObservedJob(
        **_record_of(observation),
        **_estimates(observation, known),
        **_about_the_end(observation, known, alive_at),
        doubles=known.doubles,
        never_since=(known.never_since or epoch(now())) if observation.never else None,
        ended_seen_at=(known.ended_seen_at or epoch(now())) if observation.state.terminal else None,
        controller_started_at=pending.controller_started_at if observation.state is JobState.CANCELLED else None,
        unknown=known.unknown,
    )
    allocation.observed_state = observation.state.value
    if state := _PROGRESS.get(observation.state):
        allocation.state = later(AllocationState(allocation.state), state).value
    if observation.exit_code is not None and observation.state.terminal:
        allocation.exit_code = observation.exit_code
    if observation.state in (JobState.QUEUED, JobState.HELD) and observation.explanation:
        why = f"{observation.explanation} {HELD_BACK}" if held else observation.explanation
        explain(notes, allocation, why, begins=pending.waiting)


def _is_requeued(allocation: Allocation, observation: Observation) -> bool:
    """Return the scheduler itself ended the job's first run and put it back into its queue. That run is over: another
    attempt takes its place as soon as the job is not held, and a further run of this job is refused. (One that is back
    before the next observation is noticed when it asks for the lease.)"""
    waits = observation.state in (JobState.QUEUED, JobState.HELD)
    # A run that has reported its exit is still ending: the next observation shows the job's state after that.
    leaves = observation.state is JobState.FINISHING
    over = waits or (bool(allocation.exits) and not leaves) or allocation.observed_state == JobState.HELD
    return observation.restarts > 0 and allocation.lease_job == observation.job_id and over


def _ask_to_leave(session: Session, notes: log_store.Notes, allocation: Allocation, observation: Observation) -> None:
    """Pass on the scheduler's preemption notice: few schedulers notify the job itself (Slurm signals steps, not batch
    scripts)."""
    if observation.taken_back_at is None:
        return
    asks = "" if observation.state.terminal else ": it is asked to save its work and leave"
    explain(notes, allocation, f"The scheduler takes the job's resources for a job of higher priority{asks}.")
    if not observation.state.terminal and allocation.preempt_at is None:
        allocation.preempt_at, allocation.preempt_reason = now(), "scheduler"
        wake(session, f"allocation:{allocation.id}")


def _take_absence(allocation: Allocation, taken: dt.datetime, quiet_period: float) -> bool:
    """Take in that a job is not listed. Returns whether its submit has certainly not happened and is still needed."""
    asked = allocation.submitted_at or allocation.submit_started_at
    if allocation.submission == SubmissionState.SUBMITTING or (asked and taken < asked):
        return False  # the snapshot may be older than the job
    if allocation.absent_since is None:
        allocation.absent_since = taken
    unseen_for = (taken - allocation.absent_since).total_seconds()
    if allocation.submission != SubmissionState.UNKNOWN or unseen_for < quiet_period:
        return False
    # Two good observations, further apart than the scheduler may take to answer, found no job: it did not happen.
    allocation.submission = SubmissionState.NEW.value
    allocation.absent_since = None
    return allocation.kill_at is None


def _is_orphan(observation: Observation, wanted_until: float | None, taken: float) -> bool:
    """Whether a job of ours serves no live attempt. One whose attempt has just ended is still ending, and one
    without a row may belong to a transaction that is about to commit."""
    if observation.state.terminal or observation.state is JobState.FINISHING:
        return False
    return taken > (wanted_until if wanted_until is not None else (observation.submitted_at or taken) + ORPHAN_GRACE)


def _linked(session: Session) -> frozenset[str]:
    """Return the accounts that users of this master are linked to."""
    return frozenset(filter(None, session.scalars(select(User.agent_user).where(User.agent_user.is_not(None)))))


@dataclass(frozen=True)
class _Ended:
    at: dt.datetime
    run_as: str | None


def _ended(session: Session, tokens: Sequence[str]) -> dict[str, _Ended]:
    if not tokens:
        return {}
    columns = select(Allocation.token, Allocation.ended_at, Allocation.run_as)
    rows = session.execute(columns.where(Allocation.token.in_(tokens)))
    return {row.token: _Ended(row.ended_at, row.run_as) for row in rows if row.ended_at is not None}


_PROGRESS = {
    JobState.QUEUED: AllocationState.ASSIGNED,
    JobState.HELD: AllocationState.ASSIGNED,
    JobState.STARTING: AllocationState.STARTING,
    JobState.RUNNING: AllocationState.STARTING,  # RUNNING for users only when the runtime has joined
}


def _ref(observation: Observation) -> JobRef:
    return JobRef(observation.token, observation.job_id, observation.cluster, observation.user)
