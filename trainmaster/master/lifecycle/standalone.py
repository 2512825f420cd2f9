"""State machine of a standalone task.

A task needs one live allocation while it is ACTIVE and none otherwise. Its program runs once: another attempt follows
only when nothing of the last one ran, or when the program was asked to leave and can continue from what it saved.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from trainmaster.master.lifecycle.decisions import Allocate, End, Preempt, WriteLog, delay_after
from trainmaster.master.lifecycle.states import OutcomeKind


class TaskState(enum.StrEnum):
    """Determined's states of generic tasks."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_PAUSED = "STOPPING_PAUSED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"

    @property
    def terminal(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.CANCELED, TaskState.ERROR)


@dataclass(frozen=True)
class Task:
    """The state of one task. `allocated`: an allocation of it has not ended yet."""

    state: TaskState
    pausable: bool = False
    attempts: int = 0
    setbacks: int = 0
    allocated: bool = False


@dataclass(frozen=True)
class Created:
    pass


@dataclass(frozen=True)
class Pause:
    why: str


@dataclass(frozen=True)
class Unpause:
    pass


@dataclass(frozen=True)
class Kill:
    why: str


@dataclass(frozen=True)
class AllocationEnded:
    """An attempt is over. `ran`: its job had come up. `saved`: it left as it was asked to, with its work saved."""

    outcome: OutcomeKind
    text: str
    ran: bool = True
    saved: bool = False


Event = Created | Pause | Unpause | Kill | AllocationEnded


@dataclass(frozen=True)
class Finish:
    """The task has ended for good."""

    why: str


Decision = Allocate | Preempt | End | Finish | WriteLog


class NotPossible(ValueError):
    """A command that the task's state does not allow; the message says why."""


def step(task: Task, event: Event) -> tuple[Task, tuple[Decision, ...]]:
    """Return the task after `event`, and the decisions. Raises NotPossible for a command that the state does not
    allow."""
    match event:
        case Created():
            return _again(task, 0)
        case Pause(why):
            return _pause(task, why)
        case Unpause():
            return _unpause(task)
        case Kill(why):
            return _kill(task, why)
        case AllocationEnded():
            return _ended(replace(task, allocated=False), event)


def _again(task: Task, delay: int) -> tuple[Task, tuple[Decision, ...]]:
    attempt = task.attempts + 1
    after = replace(task, state=TaskState.ACTIVE, attempts=attempt, allocated=True)
    return after, (Allocate(attempt, delay),)


def _finish(task: Task, state: TaskState, why: str) -> tuple[Task, tuple[Decision, ...]]:
    level = "ERROR" if state is TaskState.ERROR else "INFO"
    return replace(task, state=state), (Finish(why), WriteLog(level, f"{why.rstrip('.')}."))


def _pause(task: Task, why: str) -> tuple[Task, tuple[Decision, ...]]:
    if task.state.terminal or task.state is TaskState.STOPPING_CANCELED:
        raise NotPossible(f"it is {task.state}, and cannot be paused")
    if not task.pausable:
        raise NotPossible("it cannot be paused: it was not created to be pausable")
    if task.state is not TaskState.ACTIVE:
        return task, ()
    if not task.allocated:
        return replace(task, state=TaskState.PAUSED), ()
    return replace(task, state=TaskState.STOPPING_PAUSED), (Preempt(why),)


def _unpause(task: Task) -> tuple[Task, tuple[Decision, ...]]:
    if task.state is TaskState.STOPPING_PAUSED:
        return replace(task, state=TaskState.ACTIVE), ()  # the attempt was asked to leave: another one follows it
    if task.state is TaskState.PAUSED:
        return _again(task, 0)
    if task.state is TaskState.ACTIVE:
        return task, ()
    raise NotPossible(f"it is {task.state}, and cannot be resumed")


def _kill(task: Task, why: str) -> tuple[Task, tuple[Decision, ...]]:
    if task.state.terminal:
        return task, ()
    if not task.allocated:
        return _finish(task, TaskState.CANCELED, why)
    return replace(task, state=TaskState.STOPPING_CANCELED), (End(why),)


def _sent_away(event: AllocationEnded) -> bool:
    """Whether the program was made to leave, so that its end tells nothing of it. One that reaches its time limit
    without having saved anything would reach it again."""
    asked = event.outcome in (OutcomeKind.PREEMPTED, OutcomeKind.STOPPED)
    return asked or (event.outcome is OutcomeKind.WALLTIME and event.saved)


def _ended(task: Task, event: AllocationEnded) -> tuple[Task, tuple[Decision, ...]]:
    if task.state is TaskState.STOPPING_CANCELED:
        return _finish(task, TaskState.CANCELED, event.text)
    if event.outcome is OutcomeKind.COMPLETED:
        return _finish(task, TaskState.COMPLETED, event.text)
    if event.outcome is OutcomeKind.CANCELLED:
        return _finish(task, TaskState.CANCELED, event.text)
    never_ran = event.outcome is OutcomeKind.INFRASTRUCTURE and not event.ran
    sent_away = _sent_away(event)
    if task.state is TaskState.STOPPING_PAUSED and (never_ran or sent_away):
        return replace(task, state=TaskState.PAUSED, setbacks=0), (WriteLog("INFO", "It is paused."),)
    if never_ran and (delay := delay_after(task.setbacks + 1)) is not None:
        after, decisions = _again(replace(task, setbacks=task.setbacks + 1), delay)
        return after, (
            WriteLog("WARNING", f"{event.text.rstrip('.')}. Nothing of it ran: it is tried again."),
            *decisions,
        )
    if task.pausable and sent_away:
        after, decisions = _again(replace(task, setbacks=0), 0)
        return after, (WriteLog("INFO", f"{event.text.rstrip('.')}. Another attempt follows."), *decisions)
    return _finish(task, TaskState.ERROR, event.text)
