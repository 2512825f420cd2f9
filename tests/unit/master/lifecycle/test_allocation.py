"""How an attempt ended: the runtime's word, the record on disk, the scheduler, and silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.lifecycle.allocation import (
    ACCOUNTING_WAIT,
    IMPOSSIBLE_AFTER,
    PEER_WAIT,
    SETTLE_TIME,
    Attempt,
    last_line,
    later,
    verdict,
)
from trainmaster.master.lifecycle.states import AllocationState, OutcomeKind
from trainmaster.master.values.exits import ExitRecord

FAILED = "resources failed with non-zero exit code"
NOW = 1000.0
LOST = 300.0


def record(rank: int = 0, code: int = 0, **facts: object) -> ExitRecord:
    return ExitRecord(node_rank=rank, exit_code=code, **facts)  # type: ignore[arg-type]


def attempt(*records: ExitRecord, **facts: object) -> Attempt:
    exits = {r.node_rank: r for r in records}
    given = {"leased": True, "exits": exits, "first_exit_at": NOW if exits else None, **facts}
    return Attempt(**given)  # type: ignore[arg-type]


def kind(facts: Attempt, now: float = NOW) -> OutcomeKind | None:
    outcome = verdict(facts, now, LOST)
    return outcome.kind if outcome else None


ENDED_BY_US = (OutcomeKind.STOPPED, OutcomeKind.PREEMPTED)


def test_clean_exit_record_suffices_for_completion() -> None:
    assert kind(attempt(record())) is OutcomeKind.COMPLETED


def test_a_plain_failure_is_the_codes_own() -> None:
    outcome = verdict(attempt(record(code=3, message="ValueError: no data", node_name="n1")), NOW, LOST)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.FAILED
    assert "exit code 3 on node n1: ValueError: no data" in outcome.text


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ({"code": 1}, "The training code ended with exit code 1 on node n1; its last lines: ImportError: x"),
        (
            {"code": 127},
            "The training code ended with exit code 127 (there is no such program) on node n1; "
            "its last lines: ImportError: x",
        ),
        (
            {"code": 139, "signal": 11},
            "The training code was ended by signal 11 (SIGSEGV) on node n1; its last lines: ImportError: x",
        ),
        ({"code": 128 + 40}, "The training code was ended by signal 40 on node n1; its last lines: ImportError: x"),
    ],
)
def test_outcome_text_quotes_last_lines_of_code(left: dict[str, int], text: str) -> None:
    said = record(**left, message="the training ended", evidence="ImportError: x", node_name="n1")
    outcome = verdict(attempt(said), NOW, LOST)
    assert outcome is not None
    assert outcome.text == text


def test_all_nodes_must_finish_well_but_one_failure_is_enough() -> None:
    assert kind(attempt(record(0), num_nodes=2)) is None
    assert kind(attempt(record(0), record(1), num_nodes=2)) is OutcomeKind.COMPLETED
    failed = attempt(record(1, code=1), num_nodes=2, first_exit_at=NOW)
    assert verdict(failed, NOW + PEER_WAIT - 1, LOST) is None  # the cause may be on the other node
    outcome = verdict(failed, NOW + PEER_WAIT, LOST)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.FAILED


def test_the_rank_that_failed_first_is_named_with_its_node() -> None:
    gone = record(0, 1, node_name="n1", failed_rank=1, failed_at=20.0, evidence="Connection reset by peer")
    killed = record(1, 137, node_name="n2", failed_rank=3, failed_at=19.5, evidence="epoch 7")
    outcome = verdict(attempt(gone, killed, num_nodes=2, first_exit_at=NOW), NOW + ACCOUNTING_WAIT, LOST)
    assert outcome is not None
    assert outcome.text == (
        "The training code was ended by signal 9 (SIGKILL) in rank 3 on node n2; its last lines: epoch 7"
    )


def test_first_cause_is_blamed_not_signalled_ranks() -> None:
    outcome = verdict(attempt(record(0, 143, signal=15), record(1, 7, node_name="n2"), num_nodes=2), NOW, LOST)
    assert outcome is not None
    assert outcome.exit_code == 7


def test_failure_before_training_is_infrastructure_or_rejected() -> None:
    assert kind(attempt(record(code=75, began=False, message="no rendezvous"))) is OutcomeKind.INFRASTRUCTURE
    assert kind(attempt(record(code=70, began=False, message="bad archive"))) is OutcomeKind.REJECTED
    assert kind(attempt(record(code=75))) is OutcomeKind.FAILED


def test_leaving_after_an_acknowledged_preemption() -> None:
    assert kind(attempt(record(preempted="pause", acked=True), preempt_reason="pause")) is OutcomeKind.PREEMPTED
    assert kind(attempt(record(preempted="walltime", acked=True))) is OutcomeKind.WALLTIME
    assert kind(attempt(record(), preempt_reason="pause")) is OutcomeKind.COMPLETED  # it had just finished


def test_unexplained_signal_waits_for_word_of_scheduler() -> None:
    killed = attempt(record(code=137, signal=9))
    assert kind(killed) is None
    assert kind(killed, NOW + ACCOUNTING_WAIT) is OutcomeKind.FAILED
    for said in (OutcomeKind.CANCELLED, OutcomeKind.WALLTIME, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.INFRASTRUCTURE):
        assert kind(attempt(record(code=137, signal=9), reported=said, ended_seen_at=NOW)) is said


def test_exit_after_scheduler_preemption_waits_for_its_cause() -> None:
    left = {"preempt_reason": "scheduler"}  # the runtime reports a SIGTERM so, whoever sent it
    saved = attempt(record(preempted="scheduler", acked=True), **left)
    assert kind(saved) is None
    assert kind(saved, NOW + ACCOUNTING_WAIT) is OutcomeKind.PREEMPTED
    deleted = {"reported": OutcomeKind.CANCELLED, "ended_seen_at": NOW}
    assert kind(attempt(record(preempted="scheduler", acked=True), **left, **deleted)) is OutcomeKind.CANCELLED
    done = {"reported": OutcomeKind.COMPLETED, "ended_seen_at": NOW - SETTLE_TIME}
    assert kind(attempt(record(preempted="scheduler", acked=True), **left, **done)) is OutcomeKind.PREEMPTED


@pytest.mark.parametrize("left", [{"code": 143, "signal": 15}, {"code": 1}])
@pytest.mark.parametrize("noted", [None, "scheduler"])  # the master was away when the runtime got the signal, or there
def test_unexplained_signal_is_infrastructure_failure(left: dict[str, int], noted: str | None) -> None:
    told = attempt(record(**left, preempted="scheduler"), preempt_reason=noted, absent_since=NOW)
    assert kind(told) is None
    assert kind(told, NOW + ACCOUNTING_WAIT) is OutcomeKind.INFRASTRUCTURE
    failed = attempt(record(**left, preempted="scheduler"), preempt_reason=noted, reported=OutcomeKind.FAILED)
    assert kind(failed, NOW + ACCOUNTING_WAIT) is OutcomeKind.INFRASTRUCTURE
    asked = attempt(record(code=143, signal=15, preempted="scheduler"), preempt_reason="the experiment was paused")
    assert kind(asked) is OutcomeKind.STOPPED


def test_preempted_job_resumes_unless_it_had_ended_itself() -> None:
    taken = {"reported": OutcomeKind.PREEMPTED, "ended_seen_at": NOW - SETTLE_TIME}
    assert kind(attempt(record(code=137, signal=9), **taken)) is OutcomeKind.PREEMPTED
    assert kind(attempt(record(code=143, signal=15, preempted="scheduler"), **taken)) is OutcomeKind.PREEMPTED
    assert kind(attempt(record(preempted="scheduler", acked=True), **taken)) is OutcomeKind.PREEMPTED
    assert kind(attempt(record(preempted="scheduler"), **taken)) is OutcomeKind.COMPLETED
    assert kind(attempt(record(code=3), **taken)) is OutcomeKind.FAILED
    assert kind(attempt(**taken)) is OutcomeKind.PREEMPTED


def test_trial_waits_while_its_job_is_held_unless_training_ended() -> None:
    later = NOW + 100 * ACCOUNTING_WAIT
    for left in ((), (record(preempted="scheduler", acked=True),), (record(code=137, signal=9),)):
        assert kind(attempt(*left, held=True), later) is None
        assert kind(attempt(*left, held=True, kill_asked=True, absent_since=NOW), later) in ENDED_BY_US
    assert kind(attempt(record(), held=True)) is OutcomeKind.COMPLETED
    assert kind(attempt(record(code=3), held=True)) is OutcomeKind.FAILED
    assert kind(attempt(record(), held=True, num_nodes=2)) is None


def test_requested_kill_is_stop_not_failure() -> None:
    assert kind(attempt(record(code=137, signal=9), kill_asked=True)) is OutcomeKind.STOPPED
    assert kind(attempt(kill_asked=True, absent_since=NOW)) is OutcomeKind.STOPPED


def test_the_runtime_knows_of_its_own_memory() -> None:
    assert kind(attempt(record(code=137, signal=9, oom=True))) is OutcomeKind.OUT_OF_MEMORY


def test_killed_runtime_is_infrastructure_failure() -> None:
    gone = {"reported": OutcomeKind.FAILED, "ended_seen_at": NOW - SETTLE_TIME}
    assert kind(attempt(**gone)) is OutcomeKind.INFRASTRUCTURE
    assert kind(attempt(leased=False, **gone)) is OutcomeKind.FAILED
    # A signal that nothing of the user's can have caused, before anything of it ran.
    for number, blamed in ((15, OutcomeKind.INFRASTRUCTURE), (9, OutcomeKind.INFRASTRUCTURE), (11, OutcomeKind.FAILED)):
        assert kind(attempt(leased=False, reported_signal=number, **gone)) is blamed


@pytest.mark.parametrize("said", [OutcomeKind.OUT_OF_MEMORY, OutcomeKind.CANCELLED, OutcomeKind.WALLTIME])
def test_schedulers_verdict_counts_after_settle_time(said: OutcomeKind) -> None:
    facts = attempt(reported=said, ended_seen_at=NOW)
    assert kind(facts) is None
    assert kind(facts, NOW + SETTLE_TIME) is said


def test_ended_well_without_a_word_is_not_success() -> None:
    facts = attempt(reported=OutcomeKind.COMPLETED, ended_seen_at=NOW - SETTLE_TIME)
    assert kind(facts) is OutcomeKind.INFRASTRUCTURE


def test_silence_alone_never_ends_a_trial() -> None:
    assert kind(attempt(heartbeat_at=NOW)) is None
    assert kind(attempt(heartbeat_at=NOW - 10, absent_since=NOW - 10 * LOST)) is None
    assert kind(attempt(heartbeat_at=NOW - LOST, absent_since=NOW - LOST)) is OutcomeKind.INFRASTRUCTURE


def test_a_job_that_can_never_start_is_given_up_after_a_while() -> None:
    waiting = attempt(leased=False, never_since=NOW, reported_text="More nodes than the partition has.")
    assert verdict(waiting, NOW + IMPOSSIBLE_AFTER - 1, LOST) is None
    outcome = verdict(waiting, NOW + IMPOSSIBLE_AFTER, LOST)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.REJECTED
    assert outcome.text.endswith("More nodes than the partition has")


@given(
    st.floats(0, 10 * LOST),
    st.floats(0, 10 * LOST),
    st.booleans(),
)
def test_absent_job_with_heartbeats_stays_alive(absent_for: float, quiet_for: float, leased: bool) -> None:
    facts = Attempt(leased=leased, heartbeat_at=NOW - quiet_for, absent_since=NOW - absent_for)
    outcome = verdict(facts, NOW, LOST)
    assert (outcome is None) == (min(absent_for, quiet_for) < LOST)


@given(st.sampled_from(list(AllocationState)), st.sampled_from(list(AllocationState)))
def test_states_never_move_back(state: AllocationState, news: AllocationState) -> None:
    assert later(state, news).rank == max(state.rank, news.rank)


@pytest.mark.parametrize(
    ("outcome", "status", "ran", "level", "line"),
    [
        (OutcomeKind.COMPLETED, 0, True, "INFO", "resources exited successfully with a zero exit code"),
        (OutcomeKind.PREEMPTED, 0, True, "INFO", "resources exited successfully with a zero exit code"),
        (
            *(OutcomeKind.FAILED, 3, True, "ERROR"),
            f"crashed: {FAILED}: container failed with non-zero exit code: 3 (exit code 3)",
        ),
        (OutcomeKind.INFRASTRUCTURE, None, True, "ERROR", f"crashed: {FAILED}: why"),
        (
            *(OutcomeKind.REJECTED, None, False, "ERROR"),
            f"crashed: {FAILED}: unable to launch job: why",
        ),
        (OutcomeKind.STOPPED, 0, True, "INFO", "killed: resources exited successfully with a zero exit code"),
        (OutcomeKind.CANCELLED, None, True, "INFO", "killed: resources failed with non-zero exit code: why"),
    ],
)
def test_the_last_line_is_the_one_that_scripts_look_for(
    outcome: OutcomeKind, status: int | None, ran: bool, level: str, line: str
) -> None:
    assert last_line(outcome, "why", status, ran=ran) == (level, line)


def test_of_resources_that_were_never_there_nothing_is_said() -> None:
    assert last_line(OutcomeKind.STOPPED, "It was withdrawn", None, ran=False) is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, "It was ended at once"),
        ("scheduler", "It was ended at once"),  # how the kill itself reached the job
        ("paused", "It was asked to leave (paused) and was ended before it did"),
    ],
)
def test_killed_attempt_names_what_it_was_asked_before(reason: str | None, text: str) -> None:
    outcome = verdict(attempt(record(0, 137, signal=9), kill_asked=True, preempt_reason=reason), NOW, LOST)
    assert outcome is not None
    assert (outcome.kind, outcome.text) == (OutcomeKind.STOPPED, text)
