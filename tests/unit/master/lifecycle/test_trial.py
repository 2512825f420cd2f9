"""The trial machine: single rules as a table, and a random walk that checks what must hold on every path."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trainmaster.master.lifecycle import trial as t
from trainmaster.master.lifecycle.decisions import MAX_SETBACKS, Allocate, End, Preempt
from trainmaster.master.lifecycle.states import OutcomeKind, State


def active(**changes: object) -> t.Trial:
    base = {"state": State.ACTIVE, "max_restarts": 2, "attempts": 1, "allocated": True}
    return t.Trial(**{**base, **changes})  # type: ignore[arg-type]


def kinds(decisions: tuple[t.Decision, ...]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


def ended(outcome: OutcomeKind, *, saved: bool = False) -> t.AllocationEnded:
    return t.AllocationEnded(outcome, "because", saved)


@pytest.mark.parametrize(
    ("trial", "event", "state", "expected"),
    [
        (active(allocated=False, attempts=0), t.Created(), State.ACTIVE, ["Allocate"]),
        (active(allocated=False, attempts=0, state=State.PAUSED), t.Created(paused=True), State.PAUSED, []),
        (active(), t.Pause(), State.PAUSED, ["Preempt"]),
        (active(state=State.PAUSED, allocated=False), t.Activate(), State.ACTIVE, ["Allocate"]),
        (active(state=State.PAUSED), t.Activate(), State.ACTIVE, []),  # the next attempt follows the one that leaves
        (active(), t.Hold("rung 1"), State.PAUSED, ["Preempt"]),
        (active(state=State.PAUSED), t.Hold("rung 1"), State.PAUSED, []),
        (active(state=State.STOPPING_KILLED), t.Hold("rung 1"), State.STOPPING_KILLED, []),
        (active(state=State.PAUSED, allocated=False, held=True), t.Activate(), State.PAUSED, []),
        (active(state=State.PAUSED, allocated=False, held=True), t.Release("rung 1"), State.ACTIVE, ["Allocate"]),
        (active(state=State.PAUSED, held=True), t.Release("rung 1"), State.ACTIVE, []),
        (active(state=State.PAUSED, held=True), t.Release("rung 1", paused=True), State.PAUSED, []),
        (active(state=State.PAUSED, allocated=False), t.Release("rung 1"), State.PAUSED, []),
        (active(state=State.PAUSED, held=True), ended(OutcomeKind.PREEMPTED), State.PAUSED, []),
        (active(state=State.PAUSED, held=True), ended(OutcomeKind.COMPLETED), State.COMPLETED, ["WriteLog", "Finish"]),
        (active(), t.Stop(t.StopCause.SEARCHER, "rung 1"), State.STOPPING_COMPLETED, ["Preempt"]),
        (active(), t.Stop(t.StopCause.KILL, "user"), State.STOPPING_KILLED, ["End"]),
        (active(allocated=False), t.Stop(t.StopCause.CANCEL, "user"), State.CANCELED, ["WriteLog", "Finish"]),
        (active(), ended(OutcomeKind.COMPLETED), State.COMPLETED, ["WriteLog", "Finish"]),
        (active(), ended(OutcomeKind.REJECTED), State.ERROR, ["WriteLog", "Finish"]),
        (active(), ended(OutcomeKind.CANCELLED), State.CANCELED, ["WriteLog", "Finish"]),
        (active(), ended(OutcomeKind.FAILED), State.ACTIVE, ["WriteLog", "Allocate"]),
        (active(restarts=2), ended(OutcomeKind.FAILED), State.ERROR, ["WriteLog", "Finish"]),
        (active(restarts=2), ended(OutcomeKind.WALLTIME, saved=True), State.ACTIVE, ["WriteLog", "Allocate"]),
        (active(restarts=2), ended(OutcomeKind.WALLTIME), State.ERROR, ["WriteLog", "Finish"]),
        (active(restarts=2), ended(OutcomeKind.INFRASTRUCTURE), State.ACTIVE, ["WriteLog", "Allocate"]),
        (active(state=State.PAUSED), ended(OutcomeKind.PREEMPTED), State.PAUSED, []),
        (
            active(state=State.STOPPING_COMPLETED),
            ended(OutcomeKind.FAILED),
            State.COMPLETED,
            ["WriteLog", "WriteLog", "Finish"],
        ),
        (active(state=State.STOPPING_KILLED), ended(OutcomeKind.STOPPED), State.CANCELED, ["WriteLog", "Finish"]),
    ],
)
def test_rule(trial: t.Trial, event: t.Event, state: State, expected: list[str]) -> None:
    after, decisions = t.step(trial, event)
    assert after.state is state
    assert kinds(decisions) == expected


@pytest.mark.parametrize("memory", [False, True])
def test_failure_for_want_of_memory_is_told_apart(memory: bool) -> None:
    event = replace(ended(OutcomeKind.FAILED), out_of_memory=memory)
    again, _ = t.step(active(), event)
    assert again.state is State.ACTIVE
    _, decisions = t.step(active(restarts=2), event)
    finish = decisions[-1]
    assert isinstance(finish, t.Finish)
    assert finish.out_of_memory is memory


def test_walltime_with_a_checkpoint_is_not_charged() -> None:
    after, _ = t.step(active(restarts=1), ended(OutcomeKind.WALLTIME, saved=True))
    assert after.restarts == 1


@pytest.mark.parametrize("outcome", [OutcomeKind.WALLTIME, OutcomeKind.STOPPED, OutcomeKind.PREEMPTED])
def test_time_limits_without_progress_end_trial_in_error(outcome: OutcomeKind) -> None:
    for stalled in range(t.MAX_STALLED):
        assert t.step(active(), replace(ended(outcome, saved=True), stalled=stalled))[0].state is State.ACTIVE
    after, decisions = t.step(active(), replace(ended(outcome, saved=True), stalled=t.MAX_STALLED))
    assert after.state is State.ERROR
    assert after.restarts == 0
    assert any(
        "3 in a row that reached its time limit without a checkpoint of later steps" in str(d) for d in decisions
    )


def test_limits_that_cost_restarts_are_counted_by_these() -> None:
    after, _ = t.step(active(restarts=0), replace(ended(OutcomeKind.WALLTIME), stalled=t.MAX_STALLED))
    assert (after.state, after.restarts) == (State.ACTIVE, 1)


def test_failure_is_charged_and_setbacks_are_forgotten() -> None:
    after, _ = t.step(active(restarts=1, setbacks=3), ended(OutcomeKind.FAILED))
    assert (after.restarts, after.setbacks) == (2, 0)


def test_endless_setbacks_end_the_trial_with_a_reason() -> None:
    trial = active(max_restarts=0)
    delays = []
    while not trial.state.terminal:
        trial, decisions = t.step(trial, ended(OutcomeKind.INFRASTRUCTURE))
        delays += [d.delay for d in decisions if isinstance(d, Allocate)]
    assert trial.state is State.ERROR
    assert trial.restarts == 0
    assert delays == sorted(delays)
    assert len(delays) == MAX_SETBACKS


def test_only_stronger_stop_replaces_another() -> None:
    trial, _ = t.step(active(), t.Stop(t.StopCause.SEARCHER, "rung"))
    trial, decisions = t.step(trial, t.Stop(t.StopCause.KILL, "user"))
    assert trial.state is State.STOPPING_KILLED
    assert kinds(decisions) == ["End"]
    trial, decisions = t.step(trial, t.Stop(t.StopCause.SEARCHER, "rung"))
    assert trial.state is State.STOPPING_KILLED
    assert decisions == ()


def test_invalid_hyperparameters_reach_the_searcher_as_such() -> None:
    trial, _ = t.step(active(), t.Stop(t.StopCause.INVALID_HP, "no such optimizer"))
    trial, decisions = t.step(trial, ended(OutcomeKind.FAILED))
    finish = decisions[-1]
    assert isinstance(finish, t.Finish)
    assert finish.early is t.StopCause.INVALID_HP


class TrialLife(RuleBasedStateMachine):
    """Any order of events: one allocation at a time, none after the end, exactly one Finish."""

    @initialize(restarts=st.integers(0, 3), paused=st.booleans())
    def create(self, restarts: int, paused: bool) -> None:
        self.finishes = 0
        self.live = False
        self.attempts: list[int] = []
        self.trial = t.Trial(State.PAUSED if paused else State.ACTIVE, restarts)
        self.take(t.Created(paused=paused))

    def take(self, event: t.Event) -> None:
        self.trial, decisions = t.step(self.trial, event)
        for decision in decisions:
            if isinstance(decision, Allocate):
                assert not self.live
                self.live = True
                self.attempts.append(decision.attempt)
            elif isinstance(decision, t.Finish):
                self.finishes += 1
            elif isinstance(decision, Preempt | End):
                assert self.live

    @rule()
    def pause(self) -> None:
        self.take(t.Pause())

    @rule()
    def activate(self) -> None:
        self.take(t.Activate())

    @rule()
    def hold(self) -> None:
        self.take(t.Hold("test"))

    @rule(paused=st.booleans())
    def release(self, paused: bool) -> None:
        self.take(t.Release("test", paused))

    @rule(cause=st.sampled_from(list(t.StopCause)))
    def stop(self, cause: t.StopCause) -> None:
        self.take(t.Stop(cause, "test"))

    @precondition(lambda self: self.live)
    @rule(outcome=st.sampled_from(list(OutcomeKind)), saved=st.booleans())
    def end(self, outcome: OutcomeKind, saved: bool) -> None:
        self.live = False
        self.take(t.AllocationEnded(outcome, "test", saved))

    @invariant()
    def holds(self) -> None:
        assert self.trial.allocated == self.live
        assert self.finishes == int(self.trial.state.terminal)
        assert self.attempts == list(range(1, len(self.attempts) + 1))
        assert self.trial.restarts <= self.trial.max_restarts
        if self.trial.state is State.ACTIVE:
            assert self.live
            assert not self.trial.held
        if self.trial.state.terminal:
            assert not self.live


TestTrialLife = TrialLife.TestCase
TestTrialLife.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@given(st.sampled_from(list(OutcomeKind)), st.booleans())
def test_an_ended_trial_hears_nothing(outcome: OutcomeKind, saved: bool) -> None:
    done = t.Trial(State.COMPLETED, 1)
    assert t.step(done, t.AllocationEnded(outcome, "late", saved)) == (done, ())
