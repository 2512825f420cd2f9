"""State machine of one experiment: what its trials must do, and when the experiment ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.decisions import WithReason
from trainmaster.master.lifecycle.states import SEVERITY, State


@dataclass(frozen=True)
class Experiment:
    """The state of one experiment. `live`: trials that have not ended. `search_done`: the searcher requests no more.
    `why`: the reason of its end, as far as that is certain."""

    state: State
    live: int = 0
    search_done: bool = False
    cancelled: bool = False  # the searcher: every trial was cancelled
    failed: bool = False  # the searcher: too many trials failed
    why: str = ""


@dataclass(frozen=True)
class Pause(WithReason):
    why: str = ""  # empty: a person asked for it


@dataclass(frozen=True)
class Activate(WithReason):
    pass


@dataclass(frozen=True)
class Cancel(WithReason):
    """Stop gracefully: trials save their work."""


@dataclass(frozen=True)
class Kill(WithReason):
    """Stop now."""


@dataclass(frozen=True)
class Fail(WithReason):
    why: str


@dataclass(frozen=True)
class TrialsLive(WithReason):
    """The number of trials that have not ended is now `count`."""

    count: int


@dataclass(frozen=True)
class SearchDone(WithReason):
    cancel: bool
    failure: bool
    why: str


Event = Pause | Activate | Cancel | Kill | Fail | TrialsLive | SearchDone


@dataclass(frozen=True)
class Propagate:
    """Give every live trial this event."""

    event: trials.Event


@dataclass(frozen=True)
class Finish:
    state: State
    why: str


Decision = Propagate | Finish


class NotPossible(ValueError):
    """The experiment's state does not allow the command; the message names the state."""


def step(experiment: Experiment, event: Event) -> tuple[Experiment, tuple[Decision, ...]]:
    """Return the experiment after `event`, and the decisions. Raises NotPossible for a command that the state does not
    allow."""
    match event:
        case Pause():
            return _pause(experiment)
        case Activate():
            return _activate(experiment)
        case Cancel():
            return _stop(experiment, State.STOPPING_CANCELED, trials.StopCause.CANCEL, "the experiment was cancelled")
        case Kill():
            return _stop(experiment, State.STOPPING_KILLED, trials.StopCause.KILL, "the experiment was killed")
        case Fail(why):
            return _stop(experiment, State.STOPPING_ERROR, trials.StopCause.ERROR, why)
        case TrialsLive(count):
            return _settle(replace(experiment, live=count))
        case SearchDone(cancel, failure, why):
            # A reason to stop comes before what the search makes of it.
            reason = experiment.why if experiment.state.stopping else why
            return _settle(replace(experiment, search_done=True, cancelled=cancel, failed=failure, why=reason))


_STOPS = {
    State.STOPPING_CANCELED: trials.StopCause.CANCEL,
    State.STOPPING_KILLED: trials.StopCause.KILL,
    State.STOPPING_ERROR: trials.StopCause.ERROR,
}


def event_for(state: State, why: str) -> trials.Event | None:
    """Return the event that each live trial of an experiment in `state` has been given, or is still to be given; None
    when the state asks nothing of trials. `why`: of a stop."""
    match state:
        case State.PAUSED:
            return trials.Pause()
        case State.ACTIVE:
            return trials.Activate()
        case _ if state in _STOPS:
            return trials.Stop(_STOPS[state], why)
        case _:
            return None


def pending_states(state: State) -> frozenset[State]:
    """Return the states of live trials that are still to be given what `event_for` returns."""
    match state:
        case State.PAUSED:
            return frozenset({State.ACTIVE})
        case State.ACTIVE:
            return frozenset({State.PAUSED})
        case _ if state in _STOPS:
            weaker = {stop for stop in SEVERITY if SEVERITY[stop] < SEVERITY[state]}
            return frozenset({State.ACTIVE, State.PAUSED, *weaker})
        case _:
            return frozenset()


def _pause(experiment: Experiment) -> tuple[Experiment, tuple[Decision, ...]]:
    if experiment.state is State.PAUSED:
        return experiment, ()
    _require(experiment.state is State.ACTIVE, experiment, "paused")
    return replace(experiment, state=State.PAUSED), (Propagate(trials.Pause()),)


def _activate(experiment: Experiment) -> tuple[Experiment, tuple[Decision, ...]]:
    if experiment.state is State.ACTIVE:
        return experiment, ()
    _require(experiment.state is State.PAUSED, experiment, "activated")
    return replace(experiment, state=State.ACTIVE), (Propagate(trials.Activate()),)


def _stop(
    experiment: Experiment, state: State, cause: trials.StopCause, why: str
) -> tuple[Experiment, tuple[Decision, ...]]:
    if experiment.state.terminal:
        return experiment, ()  # already stopped, as the user wanted
    if experiment.state.stopping and SEVERITY[experiment.state] >= SEVERITY[state]:
        return experiment, ()
    _require(not experiment.state.value.startswith("DELET"), experiment, "stopped")
    stopping = replace(experiment, state=state, why=why)
    if experiment.live:
        return stopping, (Propagate(trials.Stop(cause, why)),)
    return _settle(stopping)


def _settle(experiment: Experiment) -> tuple[Experiment, tuple[Decision, ...]]:
    if experiment.live or experiment.state.terminal or experiment.state.value.startswith("DELET"):
        return experiment, ()
    if experiment.state.stopping:
        state = experiment.state.ended_as
    elif not experiment.search_done:
        return experiment, ()
    elif experiment.failed:
        state = State.ERROR
    elif experiment.cancelled:
        state = State.CANCELED
    else:
        state = State.COMPLETED
    return replace(experiment, state=state), (Finish(state, experiment.why or "all its trials have ended"),)


def _require(fits: bool, experiment: Experiment, verb: str) -> None:
    if not fits:
        raise NotPossible(f"the experiment is {experiment.state.value} and cannot be {verb}")
