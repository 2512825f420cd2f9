"""Ends attempts: finds those that may be over, reads what they left, closes them, and ends jobs by force."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, func, or_, select, update

from trainmaster.dispatchers.base import Canceller, Explanation, JobRef, JobState, NotStarted
from trainmaster.master.db.tables import Allocation, ReportStream, Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.allocation import (
    Attempt,
    Outcome,
    later,
    settled,
    signal_of,
    verdict,
)
from trainmaster.master.lifecycle.cancellation import Cancellation, needs_asking
from trainmaster.master.lifecycle.states import AllocationState, OutcomeKind, SubmissionState
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.orchestration.task_orchestrator import locked_task
from trainmaster.master.values.observed import ObservedJob

OUTPUT_LINES = 50  # of a job that failed before its runtime came up
KEEP_FOLDER = 60.0  # seconds for which an ended job's folder stays: the job itself may still be ending
RESEND_KILL = 30.0  # seconds between two cancellations of the same job


@dataclass(frozen=True)
class Ending:
    """An attempt with signs that it has ended: a few among thousands that run or wait. `taken`: how much of each of its
    streams has been taken in."""

    allocation: Allocation
    experiment_id: int | None
    taken: Mapping[str, int] | None

    @property
    def ref(self) -> JobRef | None:
        """The job's reference; None while the scheduler's id is not known."""
        row = self.allocation
        return JobRef(row.token, row.native_id, row.cluster, row.run_as) if row.native_id is not None else None


class Endings(BoundService):
    """Ends of attempts, in the database."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def ending(self, cluster: str) -> list[Ending]:
        taken = select(func.jsonb_object_agg(ReportStream.stream, ReportStream.acked)).where(
            ReportStream.allocation_id == Allocation.id
        )
        query = (
            select(Allocation, Trial.experiment_id, taken.scalar_subquery())
            .outerjoin(Trial, Trial.id == Allocation.trial_id)
            .where(Allocation.dispatcher == cluster, Allocation.ended_at.is_(None), possibly_over())
            .order_by(Allocation.created_at)
        )
        with self._store.autocommit() as session:
            return [Ending(*row) for row in session.execute(query)]

    def note_explanation(self, allocation_id: str, explanation: Explanation) -> None:
        """Store what the scheduler's accounting, or the job's files, report of a job that left the queue."""
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id, with_for_update=True)
            if allocation.ended_at is not None:
                return
            known = allocation.observed or ObservedJob()
            if explanation.state.terminal:
                known = known.updated(
                    text=explanation.text,
                    ended_seen_at=known.ended_seen_at or epoch(now()),
                    canceller=explanation.canceller.value,
                    script_began=explanation.script_began,
                    signal=signal_of(explanation.exit_code, explanation.exit_signal) or known.signal,
                )
                allocation.observed_state = explanation.state.value
                allocation.exit_code = explanation.exit_code
            elif explanation.state is not JobState.UNKNOWN and allocation.absent_since is not None:
                # The scheduler has the job, and its listing left it out: the silence begins again.
                allocation.absent_since = now()
            allocation.observed = known.updated(asked=True)

    def verdicts(self, endings: Sequence[Ending]) -> Iterator[Verdict]:
        """Yield the verdicts of attempts whose end is certain by now."""
        time = epoch(now())
        for ending in endings:
            row = ending.allocation
            outcome = verdict(attempt_of(row), time, self._settings.lost_after)
            if outcome is not None:
                leased, taken, written = row.lease_job is not None, dict(ending.taken or {}), _written(row)
                complete = _complete(row, taken, written)
                left = row.absent_since is not None or bool(row.observed and row.observed.ended_seen_at)
                yield Verdict(
                    *(row.id, ending.experiment_id, row.token, row.run_as, outcome),
                    *(complete, leased, row.num_nodes, taken, written),
                    left=left,
                )

    def note_flood(self, allocation_id: str, sentence: str) -> None:
        """Note in the task's log that the job flooded its folder."""
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id)
            log_store.say(session, allocation.task_id, sentence, "ERROR", allocation_id)

    def end(self, allocation_id: str, outcome: Outcome) -> None:
        """Close an attempt and give its end to its trial and experiment, or its task, in one transaction."""
        with self._store.autocommit() as session:
            query = select(Allocation.task_id, Trial.experiment_id).outerjoin(Trial, Trial.id == Allocation.trial_id)
            row = session.execute(query.where(Allocation.id == allocation_id)).first()
        if row is None:
            return
        if row.experiment_id is not None:
            self.end_together(row.experiment_id, {allocation_id: outcome})
            return
        with self._store.transaction() as session, locked_task(session, self._settings, row.task_id) as orchestrator:
            allocation = session.get_one(Allocation, allocation_id, with_for_update=True, populate_existing=True)
            if allocation.ended_at is None:
                orchestrator.attempt_ended(allocation, outcome)

    def end_together(self, experiment_id: int, outcomes: Mapping[str, Outcome]) -> None:
        """End several attempts (by id) of one experiment: all or none of them."""
        ending = Allocation.id.in_(outcomes)
        of_trials = select(Trial).where(Trial.id.in_(select(Allocation.trial_id).where(ending))).order_by(Trial.id)
        of_attempts = select(Allocation).where(ending).order_by(Allocation.id)
        fresh = {"populate_existing": True}
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            trials = orchestrator.session.scalars(of_trials.with_for_update(key_share=True), execution_options=fresh)
            by_id = {trial.id: trial for trial in trials}
            for allocation in orchestrator.session.scalars(
                of_attempts.with_for_update(), execution_options=fresh
            ).all():
                if allocation.ended_at is None and allocation.trial_id is not None:
                    _end(orchestrator, allocation, by_id[allocation.trial_id], outcomes[allocation.id])

    def rejected(self, allocation_id: str, why: str) -> None:
        self.end(allocation_id, Outcome(OutcomeKind.REJECTED, f"The scheduler refuses the job: {why.rstrip('.')}"))

    def quote_output(self, allocation_id: str, output: str) -> None:
        """Copy the scheduler's capture of a job whose runtime never came up into the trial's log."""
        lines = [line for line in output.splitlines() if line.strip()][-OUTPUT_LINES:]
        with self._store.transaction() as session:
            allocation = session.get_one(Allocation, allocation_id)
            log_store.append(
                session,
                allocation.task_id,
                allocation_id,
                [log_store.NewLogLine(line, "ERROR", source="scheduler") for line in lines],
            )

    def withdraw(self, cluster: str) -> None:
        """End attempts that must end and certainly never reached a scheduler."""
        query = select(Allocation.id).where(
            Allocation.dispatcher.in_((cluster, "")),
            Allocation.ended_at.is_(None),
            Allocation.kill_at.is_not(None),
            Allocation.submission == SubmissionState.NEW.value,
        )
        with self._store.transaction() as session:
            ids = list(session.scalars(query))
        for allocation_id in ids:
            self.end(allocation_id, Outcome(OutcomeKind.STOPPED, "It was withdrawn before it was submitted"))

    def to_kill(self, cluster: str) -> list[tuple[str, JobRef | None]]:
        """List the attempts that must end and have not: (allocation, its job if the scheduler's id is known)."""
        horizon = now() - dt.timedelta(seconds=RESEND_KILL)
        query = select(Allocation).where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at.is_(None),
            Allocation.kill_at.is_not(None),
            Allocation.submission == SubmissionState.SUBMITTED.value,
            Allocation.kill_sent_at.is_(None) | (Allocation.kill_sent_at < horizon),
        )
        with self._store.transaction() as session:
            rows = list(session.scalars(query.order_by(Allocation.id).with_for_update(skip_locked=True)))
            for row in rows:
                row.kill_sent_at = now()
                row.state = later(AllocationState(row.state), AllocationState.TERMINATING).value
        return [
            (row.id, JobRef(row.token, row.native_id, row.cluster, row.run_as) if row.native_id else None)
            for row in rows
        ]

    def enforce_deadlines(self) -> None:
        """End attempts that were asked to leave and still run after their grace."""
        with self._store.transaction() as session:
            query = select(Allocation).where(
                Allocation.ended_at.is_(None), Allocation.kill_at.is_(None), Allocation.preempt_deadline < now()
            )
            for allocation in session.scalars(query.order_by(Allocation.id).with_for_update(skip_locked=True)):
                allocation.kill_at = now()
                text = f"It did not leave in time ({allocation.preempt_reason}) and is ended now."
                log_store.say(session, allocation.task_id, text, "WARNING", allocation.id)

    def uncollected(self, cluster: str, limit: int, besides: Collection[str] = ()) -> list[tuple[str, str, str | None]]:
        """Return ended attempts whose job folder still has to be read and removed: (allocation, token, account). None
        of those in `besides`."""
        query = select(Allocation.id, Allocation.token, Allocation.run_as).where(
            Allocation.dispatcher == cluster,
            Allocation.ended_at < now() - dt.timedelta(seconds=KEEP_FOLDER),
            ~Allocation.collected,
            Allocation.id.not_in(besides),
        )
        with self._store.autocommit() as session:
            return [
                (row.id, row.token, row.run_as)
                for row in session.execute(query.order_by(Allocation.ended_at).limit(limit))
            ]

    def collected(self, allocation_id: str) -> None:
        with self._store.transaction() as session:
            session.execute(update(Allocation).where(Allocation.id == allocation_id).values(collected=True))


def possibly_over() -> ColumnElement[bool]:
    """Condition on a live attempt: there is a sign that it has ended."""
    return (Allocation.submission != SubmissionState.NEW.value) & or_(
        Allocation.exits != {},
        Allocation.absent_since.is_not(None),
        Allocation.observed_state.in_([state.value for state in ENDS]),
        Allocation.observed[ObservedJob.NEVER_SINCE].is_not(None),
    )


@dataclass(frozen=True)
class UnclearEnd:
    """An attempt whose end its scheduler or its files may still explain. `reported`: the scheduler's end;
    `explains`: whether to ask it, beside reading the files."""

    allocation_id: str
    ref: JobRef
    reported: OutcomeKind | None
    explains: bool


def unclear(endings: Sequence[Ending]) -> list[UnclearEnd]:
    """List the attempts that the scheduler reports ended, or no longer lists, while exit records of nodes are missing;
    and those that it calls cancelled although something speaks against a person."""
    unexplained = []
    for ending in endings:
        attempt = attempt_of(ending.allocation)
        over = attempt.reported is not None or attempt.absent_since is not None
        doubted = _is_doubted(attempt)
        if ending.ref is not None and (doubted or (over and len(attempt.exits) < attempt.num_nodes)):
            # "failed" may hide the cause; every other state names it
            explains = doubted or attempt.reported in (None, OutcomeKind.FAILED)
            unexplained.append(UnclearEnd(ending.allocation.id, ending.ref, attempt.reported, explains))
    return unexplained


def _is_doubted(attempt: Attempt) -> bool:
    ours = attempt.kill_asked or attempt.reported is not OutcomeKind.CANCELLED
    return not ours and needs_asking(attempt.cancellation) and settled(attempt, epoch(now()))


@dataclass(frozen=True)
class Verdict:
    """`complete`: every report that the job wrote has been taken in, as far as its exit records tell. `leased`: its
    runtime came up; when it did not, only the scheduler's capture of the job's output can be read. `taken`: records
    of each stream that have been taken in; `written`: those that the exit records of its nodes count. `left`: its
    scheduler no longer has the job, so that nothing more comes into its folder."""

    allocation_id: str
    experiment_id: int | None
    token: str
    run_as: str | None
    outcome: Outcome
    complete: bool
    leased: bool
    num_nodes: int
    taken: Mapping[str, int]
    written: Mapping[str, int]
    left: bool


def _written(row: Allocation) -> dict[str, int]:
    written: dict[str, int] = {}
    for record in row.exits:
        written.update(record.spool)
    return written


def _complete(row: Allocation, taken: Mapping[str, int], written: Mapping[str, int]) -> bool:
    if len(row.exits) < row.num_nodes:
        return row.lease_job is None  # a job without a lease has reported nothing
    return all(taken.get(stream, 0) >= lines for stream, lines in written.items())


def _end(orchestrator: ExperimentOrchestrator, allocation: Allocation, trial: Trial, outcome: Outcome) -> None:
    if outcome.exit_code is not None:
        allocation.exit_code = outcome.exit_code
    saved = trial.checkpoint_count > allocation.checkpoints_before
    memory = outcome.out_of_memory or outcome.kind is OutcomeKind.OUT_OF_MEMORY
    orchestrator.allocation_ended(
        allocation,
        trials.AllocationEnded(outcome.kind, outcome.text, saved, final=outcome.final, out_of_memory=memory),
    )


def with_cause(verdict: Verdict, why: NotStarted | None) -> Verdict:
    """Add the cause to the verdict of a job that failed before its runtime came up, where its output shows it."""
    if why is None or verdict.outcome.kind is not OutcomeKind.FAILED:
        return verdict
    kind = OutcomeKind.REJECTED if why.final else OutcomeKind.FAILED
    kind = OutcomeKind.INFRASTRUCTURE if why.uncharged else kind
    return replace(verdict, outcome=replace(verdict.outcome, kind=kind, text=why.text))


def attempt_of(allocation: Allocation) -> Attempt:
    """Return the facts of a row in the form that the pure verdict needs."""
    observed = allocation.observed or ObservedJob()
    state = JobState(allocation.observed_state) if allocation.observed_state else JobState.UNKNOWN
    received = [record.received_at for record in allocation.exits]
    return Attempt(
        num_nodes=allocation.num_nodes,
        leased=allocation.lease_job is not None,
        held=state is JobState.HELD and allocation.lease_job is not None,
        heartbeat_at=epoch(allocation.heartbeat_at) if allocation.heartbeat_at else None,
        # Determined's harness acknowledges to the master alone: the runtime, which writes the record, does not receive
        # it.
        exits={
            rank: replace(record, acked=allocation.preempt_acked or record.acked)
            for rank, record in allocation.exits.by_rank.items()
        },
        first_exit_at=min(received) if received else None,
        reported=ENDS.get(state),
        reported_text=observed.text or "",
        reported_signal=observed.signal,
        ended_seen_at=observed.ended_seen_at,
        never_since=observed.never_since,
        absent_since=epoch(allocation.absent_since) if allocation.absent_since else None,
        preempt_reason=allocation.preempt_reason if allocation.preempt_at else None,
        kill_asked=allocation.kill_at is not None,
        cancellation=_cancellation(allocation),
        runs="training" if allocation.trial_id is not None else "program",
    )


def _cancellation(allocation: Allocation) -> Cancellation:
    observed = allocation.observed or ObservedJob()
    submitted = epoch(allocation.submit_started_at) if allocation.submit_started_at else None

    def by_our_clock(time: float | None) -> float | None:
        # The scheduler's clock may differ from ours: the submit is a moment of both.
        if not submitted or not observed.submitted_at or not time:
            return None
        return time - observed.submitted_at + submitted

    return Cancellation(
        by_person=observed.canceller == Canceller.PERSON,
        asked=observed.asked,
        leased_at=epoch(allocation.leased_at) if allocation.leased_at else None,
        started_at=by_our_clock(observed.started_at),
        placed=bool(observed.nodes),
        script_began=observed.script_began,
        alive_at=observed.alive_at,
        controller_started_at=by_our_clock(observed.controller_started_at),
    )


ENDS = {
    JobState.COMPLETED: OutcomeKind.COMPLETED,
    JobState.FAILED: OutcomeKind.FAILED,
    JobState.CANCELLED: OutcomeKind.CANCELLED,
    JobState.WALLTIME: OutcomeKind.WALLTIME,
    JobState.OUT_OF_MEMORY: OutcomeKind.OUT_OF_MEMORY,
    JobState.PREEMPTED: OutcomeKind.PREEMPTED,
    JobState.INFRASTRUCTURE: OutcomeKind.INFRASTRUCTURE,
}
