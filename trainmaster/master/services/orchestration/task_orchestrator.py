"""Changes one standalone task inside one transaction: loads it under its row lock, feeds events to the pure state
machine and writes its decisions, as `experiment_orchestrator` does for experiments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Task, Workspace
from trainmaster.master.lifecycle import standalone as machine
from trainmaster.master.lifecycle.allocation import Outcome
from trainmaster.master.lifecycle.decisions import Allocate, End, Preempt, WriteLog
from trainmaster.master.lifecycle.standalone import TaskState
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import Settings
from trainmaster.master.services.errors import Conflict, NotFound
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration import attempts
from trainmaster.master.services.store import wake

GENERIC, COMMAND, NOTEBOOK, SHELL, TENSORBOARD = KINDS = ("GENERIC", "COMMAND", "NOTEBOOK", "SHELL", "TENSORBOARD")
PAUSE_GRACE = 30.0  # default grace of a task, in seconds: many handle no such request
SERVICES = frozenset({NOTEBOOK, SHELL, TENSORBOARD})  # something listens in their jobs


class TaskOrchestrator:
    """Made by `locked_task`; every method must be called inside its block."""

    def __init__(self, session: Session, settings: Settings, row: Standalone) -> None:
        self.session, self.settings, self.row = session, settings, row
        self._pending: deque[Callable[[], None]] = deque()
        self._notes = log_store.Notes()

    def say(self, text: str, level: str = "WARNING") -> None:
        self._notes.say(self.row.task_id, text, level)

    def event(self, event: machine.Event) -> None:
        """Apply an event. Raises Conflict when the state does not allow a user's command."""
        row = self.row
        live = self._live_allocation()
        before = machine.Task(
            state=TaskState(row.state),
            pausable=row.pausable,
            attempts=row.attempts,
            setbacks=row.setbacks,
            allocated=live is not None,
        )
        try:
            after, decisions = machine.step(before, event)
        except machine.NotPossible as error:
            raise Conflict(f"Task {row.task_id}: {error}.") from None
        row.state, row.attempts, row.setbacks = after.state.value, after.attempts, after.setbacks
        for decision in decisions:
            self._carry_out(decision, live)

    def attempt_ended(self, allocation: Allocation, outcome: Outcome) -> None:
        """Close an attempt; its task decides what follows."""
        if outcome.exit_code is not None:
            allocation.exit_code = outcome.exit_code
        text = outcome.text
        if outcome.kind is OutcomeKind.STOPPED and self.row.reason:
            text = f"{text}: {self.row.reason}"
        attempts.close(self.session, allocation, outcome.kind, text)
        ran, saved = allocation.lease_job is not None, allocation.preempt_acked
        self.event(machine.AllocationEnded(outcome.kind, text, ran, saved))
        attempts.log_end(self._notes, allocation, outcome.kind, text)

    def settle(self) -> None:
        """Carry out all pending decisions, then save. Called by `locked_task`."""
        while self._pending:
            self._pending.popleft()()
        self.session.flush()
        self._notes.write(self.session)

    # -- inside -----------------------------------------------------------------------------------------------

    def _live_allocation(self) -> Allocation | None:
        if self.row.attempts == 0:
            return None
        query = select(Allocation).where(Allocation.task_id == self.row.task_id, Allocation.ended_at.is_(None))
        return self.session.scalar(query.with_for_update())

    def _carry_out(self, decision: machine.Decision, live: Allocation | None) -> None:
        row = self.row
        match decision:
            case Allocate(attempt, delay):
                attempts.ask_for(
                    self.session,
                    self.settings,
                    task_id=row.task_id,
                    attempt=attempt,
                    pool=row.pool,
                    slots=row.config.slots,
                    owner_id=row.owner_id,
                    delay=delay,
                    ready=False if row.kind in SERVICES else None,
                )
            case Preempt(reason) if live is not None:
                timeout = row.config.preemption_timeout
                grace = PAUSE_GRACE if timeout is None else float(timeout)
                if attempts.ask_to_leave(self.session, live, reason, grace):
                    self._condemn(live, reason)
                self._notes.say(row.task_id, f"Asked to save its work and leave: {reason}")
            case End(reason) if live is not None:
                row.reason = reason
                self._condemn(live, reason)
            case machine.Finish(why):
                row.end_time, row.reason = now(), why
                ended = update(Task).where(Task.task_id == row.task_id).values(end_time=row.end_time)
                self.session.execute(ended.execution_options(synchronize_session=False))
                wake(self.session, f"task:{row.task_id}")
                if self.session.scalar(select(Workspace.state).where(Workspace.id == row.workspace_id)):
                    wake(self.session, "janitor")  # the workspace is being deleted, and waits for this
            case WriteLog(level, text):
                self._notes.say(row.task_id, text, level)

    def _condemn(self, live: Allocation, reason: str) -> None:
        if attempts.condemn(self.session, live, reason):
            self._pending.append(lambda: self.attempt_ended(live, Outcome(OutcomeKind.STOPPED, attempts.WITHDRAWN)))


@contextmanager
def locked_task(session: Session, settings: Settings, task_id: str) -> Iterator[TaskOrchestrator]:
    """One task, in a transaction that holds no lock of an allocation or a log yet. Raises NotFound."""
    row = session.get(Standalone, task_id, with_for_update=True, populate_existing=True)
    if row is None:
        raise NotFound(f"There is no task {task_id}.")
    orchestrator = TaskOrchestrator(session, settings, row)
    yield orchestrator
    orchestrator.settle()
