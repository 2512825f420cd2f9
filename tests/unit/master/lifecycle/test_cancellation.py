"""What speaks against a person's cancellation, and what becomes of the attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.lifecycle.allocation import ACCOUNTING_WAIT, SETTLE_TIME, Attempt, verdict
from trainmaster.master.lifecycle.cancellation import Cancellation, Doubt, doubt, needs_asking
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.values.exits import ExitRecord

NOW = 1000.0
RAN = Cancellation(leased_at=100.0, started_at=99.0, placed=True, alive_at=900.0)
AGAIN = replace(RAN, started_at=950.0)
REFUSED = Cancellation(placed=True, script_began=False, started_at=990.0)
RESTARTED = replace(RAN, controller_started_at=950.0)


def attempt(known: Cancellation, **facts: object) -> Attempt:
    given = {
        "reported": OutcomeKind.CANCELLED,
        "reported_text": "The job was cancelled (scancel).",
        "ended_seen_at": NOW - SETTLE_TIME,
    }
    return Attempt(leased=known.leased_at is not None, cancellation=known, **{**given, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (RAN, None),
        (AGAIN, Doubt.STARTED_AGAIN),
        (replace(RAN, started_at=101.0), None),  # the scheduler rounds
        (REFUSED, Doubt.NEVER_BEGAN),
        (replace(REFUSED, script_began=True), None),
        (replace(REFUSED, placed=False), None),  # it waited in the queue, where a person removed it
        (replace(REFUSED, leased_at=980.0, started_at=979.0), None),  # its folder has gone, but it did run
        (RESTARTED, Doubt.CONTROLLER_RESTARTED),
        (replace(RESTARTED, controller_started_at=800.0), None),  # it was seen alive since
        (Cancellation(), None),
    ],
)
def test_doubted_cancellation_counts_as_infrastructure(known: Cancellation, found: Doubt | None) -> None:
    assert doubt(known) is found
    outcome = verdict(attempt(known), NOW, 300.0)
    assert outcome is not None
    assert outcome.kind is (OutcomeKind.INFRASTRUCTURE if found else OutcomeKind.CANCELLED)
    if found:
        assert outcome.text == f"{found}: the cluster's doing, not a person's (The job was cancelled (scancel))"
    named = verdict(attempt(replace(known, by_person=True)), NOW, 300.0)
    assert named is not None
    assert named.kind is OutcomeKind.CANCELLED, "where the record names a person, that decides"


@pytest.mark.parametrize("known", [AGAIN, RESTARTED])
@pytest.mark.parametrize("left", [{"signal": 15}, {"exit_code": 1, "preempted": "scheduler"}, {"signal": 9}])
def test_exit_record_does_not_change_infrastructure_outcome(known: Cancellation, left: dict[str, object]) -> None:
    record = ExitRecord(0, **{"exit_code": 143, **left})  # type: ignore[arg-type]
    outcome = verdict(attempt(known, exits={0: record}, first_exit_at=NOW), NOW, 300.0)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.INFRASTRUCTURE


def test_requested_kill_is_not_doubted() -> None:
    outcome = verdict(attempt(AGAIN, kill_asked=True), NOW, 300.0)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.STOPPED


def test_doubted_cancellation_waits_for_accounting() -> None:
    open_ = replace(AGAIN, asked=False)
    assert verdict(attempt(open_), NOW, 300.0) is None
    late = verdict(attempt(open_), NOW - SETTLE_TIME + ACCOUNTING_WAIT, 300.0)
    assert late is not None
    assert late.kind is OutcomeKind.INFRASTRUCTURE, "accounting that does not answer holds nobody up for ever"
    # Thousands of jobs that somebody removes at once cost no query each.
    assert verdict(attempt(replace(RAN, asked=False)), NOW, 300.0) is not None
    assert verdict(attempt(Cancellation(asked=False)), NOW, 300.0) is not None
    assert verdict(attempt(replace(REFUSED, asked=False, script_began=None)), NOW, 300.0) is None


TIMES = st.none() | st.floats(0, 2000)


@given(
    st.builds(
        Cancellation,
        *(st.booleans(), st.booleans(), TIMES, TIMES, st.booleans(), st.none() | st.booleans(), TIMES, TIMES),
    )
)
def test_every_cancellation_is_decided_in_the_end(known: Cancellation) -> None:
    outcome = verdict(attempt(known), NOW + ACCOUNTING_WAIT, 300.0)
    assert outcome is not None
    assert (outcome.kind is OutcomeKind.CANCELLED) == (doubt(known) is None)
    assert not (known.by_person and needs_asking(known))
