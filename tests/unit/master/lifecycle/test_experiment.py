from __future__ import annotations

import pytest

from trainmaster.master.lifecycle import experiment as e
from trainmaster.master.lifecycle import trial as t
from trainmaster.master.lifecycle.states import State

DONE = e.SearchDone(cancel=False, failure=False, why="all 4 trials are closed")


def test_pausing_tells_the_trials() -> None:
    after, decisions = e.step(e.Experiment(State.ACTIVE, live=2), e.Pause())
    assert after.state is State.PAUSED
    assert decisions == (e.Propagate(t.Pause()),)


def test_it_ends_when_the_search_is_done_and_no_trial_lives() -> None:
    experiment, decisions = e.step(e.Experiment(State.ACTIVE, live=1), DONE)
    assert (experiment.state, decisions) == (State.ACTIVE, ())
    experiment, decisions = e.step(experiment, e.TrialsLive(0))
    assert experiment.state is State.COMPLETED
    assert [type(d) for d in decisions] == [e.Finish]


def test_stop_reason_precedes_search_failure_reason() -> None:
    failed = e.SearchDone(cancel=False, failure=True, why="trial 3 failed: no such file")
    experiment, _ = e.step(e.Experiment(State.ACTIVE, live=1), failed)
    _, decisions = e.step(experiment, e.TrialsLive(0))
    assert decisions == (e.Finish(State.ERROR, "trial 3 failed: no such file"),)
    stopping, _ = e.step(e.Experiment(State.ACTIVE, live=1), e.Cancel())
    stopping, _ = e.step(stopping, failed)
    _, decisions = e.step(stopping, e.TrialsLive(0))
    assert decisions == (e.Finish(State.CANCELED, "the experiment was cancelled"),)


def test_experiment_without_live_trials_stays_active_in_search() -> None:
    experiment, decisions = e.step(e.Experiment(State.ACTIVE, live=1), e.TrialsLive(0))
    assert (experiment.state, decisions) == (State.ACTIVE, ())


@pytest.mark.parametrize(
    ("cancel", "failure", "state"),
    [
        (False, False, State.COMPLETED),
        (True, False, State.CANCELED),
        (False, True, State.ERROR),
        (True, True, State.ERROR),
    ],
)
def test_the_searchers_last_word_decides_the_end(cancel: bool, failure: bool, state: State) -> None:
    experiment, _ = e.step(e.Experiment(State.ACTIVE), e.SearchDone(cancel, failure, "done"))
    assert experiment.state is state


def test_a_cancelled_experiment_can_still_be_killed() -> None:
    experiment, _ = e.step(e.Experiment(State.ACTIVE, live=3), e.Cancel())
    assert experiment.state is State.STOPPING_CANCELED
    experiment, decisions = e.step(experiment, e.Kill())
    assert experiment.state is State.STOPPING_KILLED
    assert decisions == (e.Propagate(t.Stop(t.StopCause.KILL, "the experiment was killed")),)
    experiment, decisions = e.step(experiment, e.TrialsLive(0))
    assert experiment.state is State.CANCELED


def test_killing_without_trials_ends_at_once() -> None:
    experiment, decisions = e.step(e.Experiment(State.PAUSED), e.Kill())
    assert experiment.state is State.CANCELED
    assert [type(d) for d in decisions] == [e.Finish]


def test_stop_of_ended_experiment_changes_nothing() -> None:
    ended = e.Experiment(State.COMPLETED)
    assert e.step(ended, e.Kill()) == (ended, ())
    assert e.step(ended, e.Cancel()) == (ended, ())


@pytest.mark.parametrize("event", [e.Pause(), e.Activate()])
@pytest.mark.parametrize("state", [State.COMPLETED, State.STOPPING_KILLED, State.ERROR, State.DELETING])
def test_a_command_that_does_not_fit_says_the_state(event: e.Event, state: State) -> None:
    with pytest.raises(e.NotPossible, match=state.value):
        e.step(e.Experiment(state), event)


@pytest.mark.parametrize(
    ("state", "event"),
    [(State.ACTIVE, e.Pause()), (State.PAUSED, e.Activate())]
    + [(State.ACTIVE, event) for event in (e.Cancel(), e.Kill(), e.Fail("the disk is full"))],
)
def test_state_determines_event_for_its_trials(state: State, event: e.Event) -> None:
    """So a wish that is committed reaches them all, whoever carries it on."""
    experiment, (decision,) = e.step(e.Experiment(state, live=3), event)
    assert isinstance(decision, e.Propagate)
    assert e.event_for(experiment.state, decision.event.why) == decision.event
    live = [state for state in State if not state.terminal and not state.value.startswith("DELET")]
    for one in live:
        trial = t.Trial(one, max_restarts=0, allocated=True)
        after, decisions = t.step(trial, decision.event)
        assert (one in e.pending_states(experiment.state)) == (after != trial or bool(decisions))
        assert after.state not in e.pending_states(experiment.state)


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELED, State.ERROR, State.DELETING])
def test_an_experiment_that_has_ended_asks_nothing_of_trials(state: State) -> None:
    assert e.event_for(state, "") is None
    assert not e.pending_states(state)
