"""The life of a task of no experiment: what follows what, and what never happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.lifecycle import standalone as m
from trainmaster.master.lifecycle.decisions import MAX_SETBACKS, Allocate, Preempt
from trainmaster.master.lifecycle.standalone import Task, TaskState, step
from trainmaster.master.lifecycle.states import OutcomeKind as O

RUNNING = Task(TaskState.ACTIVE, pausable=True, attempts=1, allocated=True)
ONCE = replace(RUNNING, pausable=False)


def ended(kind: O, *, ran: bool = True, saved: bool = False) -> m.AllocationEnded:
    return m.AllocationEnded(kind, f"It was {kind.value}", ran, saved)


@pytest.mark.parametrize(
    ("task", "event", "state", "again"),
    [
        (ONCE, ended(O.COMPLETED), TaskState.COMPLETED, False),
        (ONCE, ended(O.FAILED), TaskState.ERROR, False),
        (ONCE, ended(O.OUT_OF_MEMORY), TaskState.ERROR, False),
        (ONCE, ended(O.REJECTED, ran=False), TaskState.ERROR, False),
        (ONCE, ended(O.CANCELLED), TaskState.CANCELED, False),
        (ONCE, ended(O.PREEMPTED), TaskState.ERROR, False),
        (ONCE, ended(O.WALLTIME, saved=True), TaskState.ERROR, False),
        (ONCE, ended(O.INFRASTRUCTURE), TaskState.ERROR, False),
        (ONCE, ended(O.INFRASTRUCTURE, ran=False), TaskState.ACTIVE, True),
        (replace(ONCE, setbacks=MAX_SETBACKS), ended(O.INFRASTRUCTURE, ran=False), TaskState.ERROR, False),
        (RUNNING, ended(O.PREEMPTED, saved=True), TaskState.ACTIVE, True),
        (RUNNING, ended(O.WALLTIME, saved=True), TaskState.ACTIVE, True),
        (RUNNING, ended(O.WALLTIME), TaskState.ERROR, False),
        (RUNNING, ended(O.FAILED), TaskState.ERROR, False),
        (replace(RUNNING, state=TaskState.STOPPING_PAUSED), ended(O.PREEMPTED, saved=True), TaskState.PAUSED, False),
        (replace(RUNNING, state=TaskState.STOPPING_PAUSED), ended(O.STOPPED), TaskState.PAUSED, False),
        (replace(RUNNING, state=TaskState.STOPPING_PAUSED), ended(O.COMPLETED), TaskState.COMPLETED, False),
        (replace(RUNNING, state=TaskState.STOPPING_PAUSED), ended(O.FAILED), TaskState.ERROR, False),
        (replace(RUNNING, state=TaskState.STOPPING_CANCELED), ended(O.FAILED), TaskState.CANCELED, False),
    ],
)
def test_attempt_end_determines_task_state_and_retry(task: Task, event: m.Event, state: TaskState, again: bool) -> None:
    after, decisions = step(task, event)
    assert (after.state, after.allocated) == (state, again)
    assert [type(one) for one in decisions if isinstance(one, Allocate)] == [Allocate] * again
    assert any(isinstance(one, m.Finish) for one in decisions) is state.terminal


def test_later_attempts_wait_longer() -> None:
    task, delays = ONCE, []
    for _ in range(4):
        task, decisions = step(task, ended(O.INFRASTRUCTURE, ran=False))
        delays += [one.delay for one in decisions if isinstance(one, Allocate)]
    assert delays == sorted(delays)
    assert delays[-1] > 0


@pytest.mark.parametrize(
    ("task", "event", "words"),
    [
        (ONCE, m.Pause("x"), "not created to be pausable"),
        (replace(RUNNING, state=TaskState.ERROR), m.Pause("x"), "ERROR, and cannot be paused"),
        (replace(RUNNING, state=TaskState.COMPLETED), m.Unpause(), "COMPLETED, and cannot be resumed"),
    ],
)
def test_commands_that_do_not_fit(task: Task, event: m.Event, words: str) -> None:
    with pytest.raises(m.NotPossible, match=words):
        step(task, event)


def test_revoked_pause_is_followed_by_another_attempt() -> None:
    task, decisions = step(RUNNING, m.Pause("for lunch"))
    assert decisions == (Preempt("for lunch"),)
    task, decisions = step(task, m.Unpause())
    assert (task.state, decisions) == (TaskState.ACTIVE, ())
    task, decisions = step(task, ended(O.PREEMPTED, saved=True))
    assert task.attempts == 2


EVENTS = st.one_of(
    st.just(m.Pause("p")),
    st.just(m.Unpause()),
    st.just(m.Kill("k")),
    st.builds(m.AllocationEnded, st.sampled_from(list(O)), st.just("t"), st.booleans(), st.booleans()),
)


@given(st.booleans(), st.lists(EVENTS, max_size=30))
def test_task_has_one_attempt_at_a_time_and_end_is_final(pausable: bool, events: list[m.Event]) -> None:
    task, decisions = step(Task(TaskState.ACTIVE, pausable=pausable), m.Created())
    for event in events:
        if isinstance(event, m.AllocationEnded) and not task.allocated:
            continue
        before = task
        try:
            task, decisions = step(task, event)
        except m.NotPossible:
            continue
        asked = [one for one in decisions if isinstance(one, Allocate)]
        over = isinstance(event, m.AllocationEnded)
        assert len(asked) <= (1 if over or not before.allocated else 0)
        assert task.attempts == before.attempts + len(asked)
        assert task.allocated is (bool(asked) or (before.allocated and not over))
        assert any(isinstance(one, m.Finish) for one in decisions) is (
            task.state.terminal and not before.state.terminal
        )
        if before.state.terminal:
            assert (task, decisions) == (before, ())
        if task.state in (TaskState.PAUSED, TaskState.COMPLETED, TaskState.CANCELED, TaskState.ERROR):
            assert not task.allocated
