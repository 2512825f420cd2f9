"""State machine of one trial.

A trial needs one live allocation while it is ACTIVE and none otherwise. Every end of an allocation arrives as one
`AllocationEnded` event; the trial decides whether to try again, and whether that costs one of its restarts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from trainmaster.master.lifecycle.decisions import Allocate, End, Preempt, WithReason, WriteLog, delay_after
from trainmaster.master.lifecycle.states import SEVERITY, OutcomeKind, State

MAX_STALLED = 3  # attempts in a row that reach their time limit without getting further
NO_RETRY = "trial failed and matched logs to a don't retry policy"  # Determined's words, which scripts search for


class StopCause(enum.StrEnum):
    SEARCHER = "searcher"
    USER_STOP = "user_stop"  # the training code asked to stop
    INVALID_HP = "invalid_hp"  # the training code rejected its hyperparameters
    CANCEL = "cancel"
    KILL = "kill"
    ERROR = "error"


_STOP_STATE = {
    StopCause.SEARCHER: State.STOPPING_COMPLETED,
    StopCause.USER_STOP: State.STOPPING_COMPLETED,
    StopCause.INVALID_HP: State.STOPPING_COMPLETED,
    StopCause.CANCEL: State.STOPPING_CANCELED,
    StopCause.KILL: State.STOPPING_KILLED,
    StopCause.ERROR: State.STOPPING_ERROR,
}


@dataclass(frozen=True)
class Trial:
    """The state of one trial. `allocated`: an allocation of it has not ended yet. `held`: the search has paused it,
    whatever a person does to its experiment."""

    state: State
    max_restarts: int
    restarts: int = 0  # restarts after failures of the user's code
    setbacks: int = 0
    attempts: int = 0
    allocated: bool = False
    stop: StopCause | None = None
    held: bool = False


@dataclass(frozen=True)
class Created(WithReason):
    """The searcher created the trial. `paused`: its experiment is paused."""

    paused: bool = False


@dataclass(frozen=True)
class Pause(WithReason):
    """A person paused its experiment."""


@dataclass(frozen=True)
class Activate(WithReason):
    """A person activated its experiment."""


@dataclass(frozen=True)
class Hold(WithReason):
    """The search pauses it."""

    why: str


@dataclass(frozen=True)
class Release(WithReason):
    """The search resumes it. `paused`: its experiment is paused."""

    why: str
    paused: bool = False


@dataclass(frozen=True)
class Stop(WithReason):
    cause: StopCause
    why: str


@dataclass(frozen=True)
class AllocationEnded(WithReason):
    """An attempt has ended. `saved`: it left a checkpoint that the next attempt can continue from. `retry_refused`:
    why another attempt would be useless, for example by a log policy. `final`: the same, by the cause of the failure.
    `stalled`: how many attempts in a row, with this one, reached their time limit without a checkpoint of later steps
    than any before. `out_of_memory`: the code had too little memory, of the node or of a GPU."""

    outcome: OutcomeKind
    text: str
    saved: bool = False
    retry_refused: str = ""
    stalled: int = 0
    final: str = ""
    out_of_memory: bool = False


Event = Created | Pause | Activate | Hold | Release | Stop | AllocationEnded


@dataclass(frozen=True)
class Finish:
    """The trial has ended for good. `early`: the reason to report to the searcher; None is a normal end.
    `out_of_memory`: it failed for want of memory."""

    state: State
    early: StopCause | None
    why: str
    out_of_memory: bool = False


Decision = Allocate | Preempt | End | Finish | WriteLog


def step(trial: Trial, event: Event) -> tuple[Trial, tuple[Decision, ...]]:
    """Return the trial after `event`, and the decisions. Events that no longer matter change nothing."""
    if trial.state.terminal:
        return trial, ()
    match event:
        case Created(paused):
            return (trial, ()) if paused else _allocate(trial, 0)
        case Pause():
            return _pause(trial, "the experiment was paused")
        case Activate():
            return (trial, ()) if trial.held else _activate(trial)
        case Hold(why):
            held = trial if trial.state.stopping else replace(trial, held=True)
            return _pause(held, why)
        case Release(_, paused):
            released = replace(trial, held=False)
            return (released, ()) if paused or not trial.held else _activate(released)
        case Stop(cause, why):
            return _stop(trial, cause, why)
        case AllocationEnded():
            after, decisions = _ended(replace(trial, allocated=False), event)
            return after, tuple(_with_memory(each, event) for each in decisions)


def _with_memory(decision: Decision, event: AllocationEnded) -> Decision:
    if event.out_of_memory and isinstance(decision, Finish) and decision.early is StopCause.ERROR:
        return replace(decision, out_of_memory=True)
    return decision


def _allocate(trial: Trial, delay: int) -> tuple[Trial, tuple[Decision, ...]]:
    attempt = trial.attempts + 1
    return replace(trial, attempts=attempt, allocated=True), (Allocate(attempt, delay),)


def _pause(trial: Trial, why: str) -> tuple[Trial, tuple[Decision, ...]]:
    if trial.state is not State.ACTIVE:
        return trial, ()
    decisions = (Preempt(why),) if trial.allocated else ()
    return replace(trial, state=State.PAUSED), decisions


def _activate(trial: Trial) -> tuple[Trial, tuple[Decision, ...]]:
    if trial.state is not State.PAUSED:
        return trial, ()
    active = replace(trial, state=State.ACTIVE)
    # An attempt that is still leaving is followed by the next one when it has left.
    return (active, ()) if trial.allocated else _allocate(active, 0)


def _stop(trial: Trial, cause: StopCause, why: str) -> tuple[Trial, tuple[Decision, ...]]:
    state = _STOP_STATE[cause]
    if trial.state.stopping and SEVERITY[trial.state] >= SEVERITY[state]:
        return trial, ()
    stopped = replace(trial, state=state, stop=cause)
    if not trial.allocated:
        return _finish(stopped, why)
    if cause in (StopCause.KILL, StopCause.ERROR):
        return stopped, (End(why),)
    return stopped, (Preempt(why),)


def _ended(trial: Trial, event: AllocationEnded) -> tuple[Trial, tuple[Decision, ...]]:
    if trial.state.stopping:
        return _ended_while_stopping(trial, event)
    match event.outcome:
        case OutcomeKind.COMPLETED:
            return _finish(replace(trial, state=State.STOPPING_COMPLETED), event.text)
        case OutcomeKind.REJECTED:
            return _fail(trial, event.text)
        case OutcomeKind.CANCELLED:
            why = f"{event.text}. A job that a person removes is not started again"
            return _finish(replace(trial, state=State.STOPPING_CANCELED, stop=StopCause.CANCEL), why)
        case OutcomeKind.PREEMPTED | OutcomeKind.STOPPED | OutcomeKind.WALLTIME if (
            event.stalled >= MAX_STALLED and trial.state is State.ACTIVE and not _is_charged(event)
        ):
            return _fail(
                trial,
                f"{event.text}; that was attempt {event.stalled} in a row that reached its time limit without a "
                "checkpoint of later steps. Raise the time limit, or save more often",
            )
        case OutcomeKind.PREEMPTED | OutcomeKind.STOPPED:
            return _again(replace(trial, setbacks=0), 0)
        case OutcomeKind.WALLTIME if event.saved:
            log = WriteLog(
                "INFO", f"{event.text}. The next attempt continues from the latest checkpoint; no restart is charged."
            )
            after, decisions = _again(replace(trial, setbacks=0), 0)
            return after, (log, *decisions)
        case OutcomeKind.INFRASTRUCTURE:
            return _setback(trial, event)
        case _:
            return _charge(trial, event)


def _is_charged(event: AllocationEnded) -> bool:
    """Whether the end of an attempt at its time limit costs a restart, of which there are only so many."""
    return event.outcome is OutcomeKind.WALLTIME and not event.saved


def _ended_while_stopping(trial: Trial, event: AllocationEnded) -> tuple[Trial, tuple[Decision, ...]]:
    failed = event.outcome in (OutcomeKind.FAILED, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.REJECTED)
    if (
        failed
        and trial.state in (State.STOPPING_COMPLETED, State.STOPPING_CANCELED)
        and trial.stop is not StopCause.INVALID_HP
    ):
        # Its result counts all the same: the searcher had its metrics before the code failed on the way out.
        log = WriteLog("WARNING", f"While it was being stopped: {event.text}")
        after, decisions = _finish(trial, event.text)
        return after, (log, *decisions)
    return _finish(trial, event.text)


def _setback(trial: Trial, event: AllocationEnded) -> tuple[Trial, tuple[Decision, ...]]:
    setbacks = trial.setbacks + 1
    delay = delay_after(setbacks)
    if delay is None:
        return _fail(
            trial, f"{event.text}; that was failure {setbacks} in a row that is not the code's fault, giving up"
        )
    wait = f" in {delay} s" if delay else ""
    log = WriteLog("WARNING", f"{event.text}. Trying again{wait}; no restart is charged.")
    after, decisions = _again(replace(trial, setbacks=setbacks), delay)
    return after, (log, *decisions)


def _charge(trial: Trial, event: AllocationEnded) -> tuple[Trial, tuple[Decision, ...]]:
    if event.retry_refused:
        log = WriteLog("ERROR", f"{NO_RETRY}: {event.retry_refused}.")
        after, decisions = _fail(trial, f"{event.text}; {event.retry_refused}")
        return after, (log, *decisions)
    if event.final and trial.restarts < trial.max_restarts:
        return _fail(trial, f"{event.text}; it is not tried again: {event.final}")
    restarts = trial.restarts + 1
    if restarts > trial.max_restarts:
        return _fail(trial, f"{event.text}; no restart is left (max_restarts: {trial.max_restarts})")
    source = "the latest checkpoint" if event.saved else "the latest checkpoint if there is one"
    log = WriteLog("ERROR", f"{event.text}. Restart {restarts} of {trial.max_restarts}, from {source}.")
    after, decisions = _again(replace(trial, restarts=restarts, setbacks=0), 0)
    return after, (log, *decisions)


def _again(trial: Trial, delay: int) -> tuple[Trial, tuple[Decision, ...]]:
    return _allocate(trial, delay) if trial.state is State.ACTIVE else (trial, ())


def _fail(trial: Trial, why: str) -> tuple[Trial, tuple[Decision, ...]]:
    return _finish(replace(trial, state=State.STOPPING_ERROR, stop=StopCause.ERROR), why)


def _finish(trial: Trial, why: str) -> tuple[Trial, tuple[Decision, ...]]:
    state = trial.state.ended_as
    early: StopCause | None = None
    if state is State.ERROR:
        early = StopCause.ERROR
    elif state is State.CANCELED:
        early = StopCause.CANCEL
    elif trial.stop is StopCause.INVALID_HP:
        early = StopCause.INVALID_HP
    log = WriteLog("ERROR" if state is State.ERROR else "INFO", f"Trial ended: {state.value}. {why}")
    return replace(trial, state=state, allocated=False), (log, Finish(state, early, why))
